"""The life of a launched gang: what its nodes say moves its replicas, and the replicas' states move the job.

Ingest (`services/intake/reports.py`) calls the `on_…` hooks within its transaction; `stop` is called by
`services/jobs/jobs.py`; the sweep calls `advance` for every live job. Each may be called again with the same news: what
has already happened is left as it is. The job's row is locked first, so that only one of them works on a job at a time.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from orchestrator import enqueue, live
from orchestrator.domain.gang import decisions, pauses
from orchestrator.domain.gang.decisions import End, Finish, GangFacts, Leave, Relaunch, Replace, Running
from orchestrator.domain.gang.pauses import EndOthers, Kept
from orchestrator.domain.gang.reasons import REASON_CHARS, ReplicaFacts, adding, reason_of, sentence_in, sentence_of
from orchestrator.domain.lifecycle import TERMINAL_REPLICA
from orchestrator.domain.words import storable
from orchestrator.models import Attempt, Job, Node, Replica, User
from orchestrator.services import outbox, transitions
from orchestrator.services.gang import gang_facts, pausing, replacing
from orchestrator.services.gang.gang_facts import replica_facts
from orchestrator.services.transitions import announce_replicas, move_job, move_replica
from worker_agent.protocol.codec import plain
from worker_agent.protocol.ending import Ending, of_version_before
from worker_agent.protocol.records import Exit, PhaseName
from worker_agent.protocol.states import Cause, JobStatus, ReplicaStatus, Strategy

# A process that trains is at work; under parameter servers, workers and ps are when they serve the coordinator; an
# evaluator when it waits for checkpoints.
PHASES_AT_WORK = frozenset({PhaseName.TRAINING, PhaseName.SERVING, PhaseName.EVALUATING})
PHASE_CHARS = 24
# Run, Leave, EndOthers, Kept: more answers in a row would be a fault of `decide`.
MOST_MOVES = 4
LOST = Ending(cause=Cause.NODE_LOST)


@transaction.atomic
def on_ack(*, node: Node, command_id: int, refused: str, now: datetime) -> None:
    """The node has taken a command, or refused it."""
    row = outbox.acknowledge(command_id=command_id, node=node, refused=refused, now=now)
    if row is None or row.replica is None:
        return
    replica = _locked(row.replica)
    if replica is None or replica.status != ReplicaStatus.ASSIGNED:
        return
    if row.kind == "stop" and not outbox.launch_was_taken(replica):
        _end(replica, Ending(cause=Cause.STOPPED), "It was stopped before it was launched.", now=now)
    elif row.kind == "launch" and refused:
        _end(replica, Ending(cause=Cause.LAUNCH_REFUSED), refused, now=now)
    elif row.kind == "launch":
        move_replica(replica=replica, to=ReplicaStatus.STARTING, now=now)
        return
    _advance(replica.job, now)


@transaction.atomic
def on_started(*, replica: Replica, pid: int, warm: bool, now: datetime) -> None:
    """The process exists. It counts as running only once it is at work (`on_phase`)."""
    fresh = _locked(replica)
    if fresh is None or fresh.pid == pid:
        return
    if fresh.status == ReplicaStatus.ASSIGNED:
        move_replica(replica=fresh, to=ReplicaStatus.STARTING, now=now)
    Replica.objects.filter(pk=fresh.pk).update(pid=pid, started_at=now)
    how = " (forked from the warm process)" if warm else ""
    text = f"{fresh.words} started on {fresh.node_name} as process {pid}{how}."
    transitions.record(kind="replica_started", text=text, node=fresh.node, replica=fresh)
    announce_replicas([fresh])


@transaction.atomic
def on_phase(*, replica: Replica, phase: str, now: datetime) -> None:
    """The process reached a milestone."""
    fresh = _locked(replica)
    if fresh is None or fresh.status in TERMINAL_REPLICA:
        return
    Replica.objects.filter(pk=fresh.pk).update(phase=storable(phase)[:PHASE_CHARS], moved_at=now)
    if phase in PHASES_AT_WORK and fresh.status != ReplicaStatus.RUNNING:
        if fresh.status == ReplicaStatus.ASSIGNED:
            move_replica(replica=fresh, to=ReplicaStatus.STARTING, now=now)
        move_replica(replica=fresh, to=ReplicaStatus.RUNNING, now=now)
    elif phase != PhaseName.LEAVING:
        announce_replicas([fresh])
        return
    _advance(fresh.job, now)


@transaction.atomic
def on_exit(*, replica: Replica, exit_record: Exit, now: datetime) -> None:
    """The process group is gone: its port and devices are free, and the gang answers to it.

    Who lost its peers while the gang was being stopped or paused was itself stopped or paused.
    """
    fresh = _locked(replica)
    if fresh is None or fresh.status in TERMINAL_REPLICA:
        return
    ending, message = exit_record.ending, exit_record.message
    if ending is None:
        ending, message = of_version_before(exit_record.cause, exit_record.code, exit_record.signal, message)
    if fresh.job.cause in (Cause.STOPPED, Cause.PAUSED) and ending.may_follow:
        ending = Ending(cause=Cause(fresh.job.cause), code=ending.code, signal=ending.signal)
        message = fresh.job.reason
    _end(fresh, ending, message, now=now)
    _advance(fresh.job, now)


@transaction.atomic
def on_unanswered(*, replica: Replica, reason: str, now: datetime) -> None:
    """The node's agent never took the launch command: the node counts as lost to this gang, which may go elsewhere."""
    fresh = _locked(replica)
    if fresh is None or fresh.status != ReplicaStatus.ASSIGNED or outbox.launch_was_taken(fresh):
        return
    outbox.withdraw_launch(fresh)
    _end(fresh, LOST, reason, now=now)
    _advance(fresh.job, now)


@transaction.atomic
def on_lost(*, replica: Replica, reason: str, now: datetime, held: bool = False) -> None:
    """The control plane gives a replica up: nobody answers for it any more. It may still run while it is `held`.

    Raises `agents.NotSent` when Redis does not answer: its launch may be on its way, and has to be withdrawn first.
    """
    fresh = _locked(replica)
    if fresh is None or fresh.status in TERMINAL_REPLICA:
        return
    outbox.withdraw_launch(fresh)
    text, columns = f"{fresh.words} on {fresh.node_name} was given up: {reason}", _columns(LOST, reason)
    move_replica(replica=fresh, to=ReplicaStatus.LOST, now=now, text=text, held=held, **columns)
    _advance(fresh.job, now)


@transaction.atomic
def advance(*, job_id: int, now: datetime) -> None:
    """Do what the states of the job's replicas call for, until there is nothing to do."""
    job = _locked_job(job_id)
    if job is not None:
        _advance(job, now)


def _advance(job: Job, now: datetime) -> None:
    if job.status == JobStatus.RUNNING:
        replacing.note_back(job, now=now)
    for _ in range(MOST_MOVES):
        match _decide(job, now):
            case Running():
                text, began = "All processes are running.", job.started_at or now
                move_job(job=job, to=JobStatus.RUNNING, now=now, text=text, started_at=began)
                Attempt.objects.filter(job=job, number=job.attempt).update(running_at=now)
            case End() as end:
                end_attempt(job=job, end=end, now=now)
            case Finish() as finish:
                _finish(job, finish, now)
                return
            case Relaunch() as relaunch:
                _relaunch(job, relaunch, now)
            case Leave(asked) as leave:
                if asked is not None:
                    Attempt.objects.filter(job=job, number=job.attempt).update(failed_on=asked.node_id)
                pausing.begin(job=job, reason=leave.reason, now=now, requeue=True)
            case EndOthers() as others:
                pausing.end_others(job, others, now=now)
            case Kept() as kept:
                _close_attempt(job, kept.cause, kept.reason, now)
                pausing.keep(job, kept, now=now)
            case Replace(parts) if problem := replacing.carry_out(job, parts, now=now):
                failed = parts[0].why
                reason = adding(reason_of(failed), problem)
                end_attempt(job=job, end=End(failed.end.cause, reason, restart=True), now=now)
            case _:
                return


def end_attempt(*, job: Job, end: End, now: datetime, text: str = "", actor: User | None = None) -> None:
    """Set the cause once and ask every live process of the attempt to end."""
    to, text = JobStatus.RESTARTING if end.restart else JobStatus.STOPPING, text or _ending_text(job, end)
    cause, reason = end.cause.value, end.reason[:REASON_CHARS]
    move_job(job=job, to=to, now=now, text=text, actor=actor, cause=cause, reason=reason, waiting_for="")
    replacing.release_places(job)
    why, called = sentence_in(reason) or "The training has ended.", end.cause if end.stacks else Cause.STOPPED
    for replica in gang_facts.live(job):
        outbox.post_stop(replica=replica, reason=why, now=now, cause=called, stacks=end.stacks)


def _decide(job: Job, now: datetime) -> decisions.Decision | pauses.Decision:
    facts = facts_of(job)
    return pausing.decide(job, facts, now=now) if job.status == JobStatus.PAUSING else decisions.decide(facts, now=now)


def facts_of(job: Job) -> GangFacts:
    """The job's present attempt as `domain/gang/decisions.py` sees it."""
    replicas = gang_facts.present(job)
    spec, failing = job.typed_spec, decisions.root_cause(replicas) is not None
    return GangFacts(
        strategy=Strategy(job.strategy),
        status=JobStatus(job.status),
        attempt=job.attempt,
        cause=Cause(job.cause) if job.cause else None,
        reason=job.reason,
        replicas=replicas,
        kind=spec.kind,
        step=job.step,
        first_step=gang_facts.first_step(job) if failing else 0,
        earlier=gang_facts.earlier(job) if failing else (),
        max_restarts=spec.max_restarts,
    )


def _finish(job: Job, decision: Finish, now: datetime) -> None:
    reason, status = decision.reason[:REASON_CHARS], decision.status
    how = "is stopped" if status is JobStatus.STOPPED else "failed"
    done = status is JobStatus.SUCCEEDED
    text = "The training completed." if done else f"The job {how}; all its processes have ended."
    text = text if _is_told(job, reason) else f"{text} {reason}".strip()
    move_job(job=job, to=status, now=now, text=text, cause=decision.cause.value, reason=reason, waiting_for="")
    _close_attempt(job, decision.cause, reason, now)
    enqueue.ask_to_dispatch()


def _relaunch(job: Job, decision: Relaunch, now: datetime) -> None:
    _close_attempt(job, decision.cause, decision.reason, now)
    text, waits = f"Attempt {job.attempt} has ended; the job waits for the next one.", ""
    not_before = now + timedelta(seconds=decision.again.wait_s) if decision.again.wait_s else None
    if not_before is not None:
        of = f"{decision.again.number} of {job.typed_spec.max_restarts}"
        waits = f"waits until {not_before:%H:%M:%S} UTC before it is launched again (restart {of})"
        text = f"Attempt {job.attempt} has ended; the job {waits}."
    pausing.resubmit(job=job, text=text, now=now, waiting_for=waits, not_before=not_before)


def _close_attempt(job: Job, cause: Cause, reason: str, now: datetime) -> None:
    gang = gang_facts.present(job)
    root = decisions.root_cause(gang)
    failed = root if root is not None and root.cause is cause is not Cause.PAUSED else None
    attempt = Attempt.objects.filter(job=job, number=job.attempt, ended_at=None)
    columns: dict[str, Any] = {"cause": cause.value, "reason": reason, "ended_at": now, "step_reached": job.step}
    if cause is not Cause.PAUSED:  # else it is noted whose node asked for it, if one did
        columns["failed_on"] = failed.node_id if failed and failed.is_culprit else None
    attempt.update(blame=decisions.blame_in(gang, failed).value if failed else "", **columns)


def _end(replica: Replica, ending: Ending, message: str, *, now: datetime) -> None:
    facts = replace(replica_facts(replica), ending=ending, message=message)
    has_served_on = ending.row.node_leaves and replica.job.cause == Cause.PAUSED
    as_meant = ending.saved or has_served_on or ending.row.status is not JobStatus.FAILED
    text, kind = _event_text(replica, facts), "replica_exited" if as_meant else "replica_failed"
    columns = _columns(ending, message)
    move_replica(replica=replica, to=ReplicaStatus.EXITED, now=now, text=text, kind=kind, **columns)


def _columns(ending: Ending, message: str) -> dict[str, Any]:
    return {
        "cause": ending.cause.value,
        "exit_code": ending.code,
        "signal": ending.signal,
        "reason": storable(message)[:REASON_CHARS],
        "ending": live.jsonable(plain(ending)),
    }


def _ending_text(job: Job, end: End) -> str:
    if end.cause is Cause.COMPLETED:
        return "The training has completed; the processes that served it are ended."
    again = end.restart and end.certain
    gang = gang_facts.present(job)
    reason = "" if _is_told(job, end.reason) else end.reason
    if all(replica.status in TERMINAL_REPLICA for replica in gang):
        return adding(reason, "So the job is launched again." if again else "") or "All its processes have ended."
    rest = "it" if len(gang) == 1 else "the rest" if again else "the rest of the gang"
    return adding(reason, f"So {rest} is ended{' and the job launched again' if again else ''}.")


def _is_told(job: Job, reason: str) -> bool:
    """Whether an event has said it: that of a process which ended, or that in which the job began to end."""
    if reason == job.reason:
        return True
    return any(reason == reason_of(each)[:REASON_CHARS] for each in gang_facts.present(job) if each.ending)


def _event_text(replica: Replica, facts: ReplicaFacts) -> str:
    """Why it ended: not once more what the job's own event says, nor what it ended of in an attempt before."""
    said = replica.job.reason
    if facts.cause in (Cause.STOPPED, Cause.PAUSED) and facts.message in (said, sentence_in(said)):
        return sentence_of(replace(facts, message=""))
    if facts.end.row.status is not JobStatus.FAILED or replica.attempt == 1:
        return reason_of(facts)
    ending = {"cause": facts.cause, "exit_code": facts.end.code, "signal": facts.end.signal, "reason": facts.message}
    alike = Replica.objects.filter(job=replica.job_id, role=replica.role, index=replica.index, **ending)
    before = alike.filter(attempt__lt=replica.attempt).order_by("attempt").first()
    if before is not None:
        return f"{sentence_of(replace(facts, message='')).removesuffix('.')} again, as in attempt {before.attempt}."
    return reason_of(facts)


def _locked(replica: Replica) -> Replica | None:
    """The replica as it is now, with the row of its job locked."""
    job = _locked_job(replica.job_id)
    fresh = Replica.objects.select_related("node").filter(pk=replica.pk).first() if job is not None else None
    if fresh is not None and job is not None:
        fresh.job = job
    return fresh


def _locked_job(job_id: int) -> Job | None:
    """The job with all that its pages are told, its row locked."""
    locked = Job.objects.select_for_update(of=("self",)).select_related("owner", "cluster")
    return locked.filter(pk=job_id).first()
