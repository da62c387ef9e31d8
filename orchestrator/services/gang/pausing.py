"""Pausing a job and taking it up again: who is asked to save, what is written when all have left.

`services/jobs/jobs.py` begins a pause for a person, `services/sweep/draining.py` for a node that is to be emptied;
`services/gang/gang.py` carries on from what the nodes say, by `domain/gang/pauses.py`.
"""

from datetime import datetime

from django.conf import settings

from orchestrator import enqueue
from orchestrator.domain.gang import pauses, roles
from orchestrator.domain.gang.decisions import GangFacts
from orchestrator.domain.gang.pauses import EndOthers, Kept, Pause
from orchestrator.domain.lifecycle import TERMINAL_REPLICA
from orchestrator.models import Cursor, Job, User
from orchestrator.services import outbox
from orchestrator.services.gang import gang_facts
from orchestrator.services.transitions import announce_job, move_job, record
from worker_agent.protocol.job.job_spec import keeps_checkpoints
from worker_agent.protocol.records import Stream
from worker_agent.protocol.states import Cause, JobStatus, Kind, Strategy


def begin(*, job: Job, reason: str, now: datetime, requeue: bool = False, actor: User | None = None) -> None:
    """Ask a running job to save and leave. `reason` is a sentence; with `requeue` it goes back into the queue."""
    spec = job.typed_spec
    saving = keeps_checkpoints(spec)
    said = f"{reason} The job saves a checkpoint and leaves." if saving else f"{reason} Its processes are ended."
    move_job(
        job=job,
        to=JobStatus.PAUSING,
        now=now,
        text=said,
        actor=actor,
        reason=reason,
        requeue=requeue,
        cause="" if saving else Cause.PAUSED.value,
    )
    # A script may save by itself when it gets SIGTERM: it has the same time for that.
    grace_s, savers = settings.PAUSE_GRACE_S if saving or spec.kind is Kind.SCRIPT else None, _savers(job)
    for row in gang_facts.live(job):
        if row.pk in savers or not saving:
            outbox.post_stop(replica=row, reason=reason, now=now, cause=Cause.PAUSED, grace_s=grace_s, save=saving)


def stay(*, job: Job, by: User) -> None:
    """A person wants what the cluster has begun: the job stays paused, and is not put back into the queue."""
    Job.objects.filter(pk=job.pk).update(requeue=False)
    job.refresh_from_db()
    record(kind="job_pausing", text=f"{by.get_username()} wants it to stay paused.", job=job, actor=by)
    announce_job(job)


def resubmit(
    *,
    job: Job,
    text: str,
    now: datetime,
    waiting_for: str = "",
    not_before: datetime | None = None,
    actor: User | None = None,
) -> None:
    """Put a job of which nothing runs back into the queue: its next launch begins with its newest checkpoint."""
    columns = {"cause": "", "reason": "", "waiting_for": waiting_for, "not_before": not_before}
    move_job(
        job=job, to=JobStatus.SUBMITTED, now=now, text=text, actor=actor, started_at=None, requeue=False, **columns
    )
    enqueue.ask_to_dispatch()


def decide(job: Job, gang: GangFacts, *, now: datetime) -> pauses.Decision:
    """What the job, which is pausing, needs next."""
    pause = Pause(saves=keeps_checkpoints(job.typed_spec), requeue=job.requeue, stored=_is_stored(job))
    return pauses.decide(gang, pause, now=now)


def end_others(job: Job, decision: EndOthers, *, now: datetime) -> None:
    """End the processes that are left, once: the job's cause says that they have been asked."""
    cause = Cause.PAUSED if decision.cause is Cause.PAUSED else Cause.STOPPED
    Job.objects.filter(pk=job.pk).update(cause=decision.cause.value)
    job.refresh_from_db()
    for row in gang_facts.live(job):
        outbox.post_stop(replica=row, reason=decision.reason, now=now, cause=cause)


def keep(job: Job, decision: Kept, *, now: datetime) -> None:
    """The job is paused; one that was paused for the cluster's sake goes straight back into the queue."""
    move_job(
        job=job,
        to=JobStatus.PAUSED,
        now=now,
        text=f"The job is paused; all its processes have ended. {decision.reason}".strip(),
        cause=Cause.PAUSED.value,
        reason=decision.reason,
        waiting_for="",
    )
    if job.requeue:
        resubmit(job=job, text="It goes back into the queue by itself.", now=now)
    enqueue.ask_to_dispatch()


def _savers(job: Job) -> set[int]:
    return {facts.replica_id for facts in roles.training(gang_facts.present(job), Strategy(job.strategy))}


def _is_stored(job: Job) -> bool:
    """Whether all that those who save wrote has arrived: a checkpoint is known before its writer's end is believed."""
    ended = job.replicas.filter(pk__in=_savers(job), status__in=TERMINAL_REPLICA).exclude(cause=Cause.NODE_LOST.value)
    streams = Cursor.objects.filter(replica__in=ended, stream=Stream.TRAINER.value)
    return all(row.final is not None and row.offset >= row.final for row in streams)
