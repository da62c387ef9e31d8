"""The sweep: what converges even when every event was lost. Each step can be run at any time, by two at once, again.

`manage.py sweep` runs it every few seconds. Whatever it gives up is explained to the user in an event. Nodes are
judged silent only while ingest has been alive long enough to have heard them.
"""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Coalesce

from orchestrator.domain.gang.decisions import End
from orchestrator.models import Attempt, Job, JoinToken, Node, Replica, ServiceBeat
from orchestrator.services import outbox
from orchestrator.services.gang import gang, hangs, node_folders
from orchestrator.services.jobs import dispatch
from orchestrator.services.nodes import failing_nodes
from orchestrator.services.strategy_tests import running as strategy_tests
from orchestrator.services.sweep import disagreements, draining, silence
from orchestrator.services.transitions import move_node
from worker_agent.protocol.states import Cause, JobStatus, NodeState, ReplicaStatus

logger = logging.getLogger(__name__)

# A beat older than this is a break: the loop was away. Shorter than the silence after which a node is lost, or ingest's
# own end would look like the nodes'.
BEAT_BREAK = timedelta(seconds=5)
TOKENS_KEPT = timedelta(days=7)
LAUNCHED = (JobStatus.LAUNCHING, JobStatus.RUNNING, JobStatus.RESTARTING, JobStatus.PAUSING, JobStatus.STOPPING)


def sweep(*, now: datetime) -> None:
    """Everything once. A step that fails is logged and does not keep the others from their work."""
    runs = Job.objects.filter(status__in=LAUNCHED).exists() or Replica.objects.live().exists()
    for step in STEPS:
        if step in OF_WHAT_RUNS and not runs:
            continue
        try:
            step(now=now)
        except Exception:
            logger.exception("the sweep's step %s failed and is tried again next time", step.__name__)


def beat(*, name: str, now: datetime) -> None:
    """A control-plane loop says that it is alive; a break begins its life anew."""
    alive = ServiceBeat.objects.filter(name=name, beat_at__range=_lately(now)).update(beat_at=now)
    if not alive:
        ServiceBeat.objects.update_or_create(name=name, defaults={"alive_since": now, "beat_at": now})


def lose_silent_nodes(*, now: datetime) -> None:
    """A node not heard of for `NODE_LOST_AFTER_S`, while ingest was listening, is lost; what runs there is given up
    when its lease is over, too."""
    limit = timedelta(seconds=settings.NODE_LOST_AFTER_S)
    listening_since = _listening_since(now)
    silences = silence.silences(listening_since=listening_since)
    if listening_since is not None and now - listening_since >= limit:
        silent = [node_id for node_id, silent_s in silences.items() if silent_s > limit.total_seconds()]
        heard = Node.objects.exclude(state=NodeState.LOST.value).annotate(seen=Coalesce("last_seen_at", "joined_at"))
        for node in heard.filter(Q(seen__lt=now - limit) | Q(pk__in=silent)):
            reason = f"No report since {node.seen:%H:%M:%S} UTC."
            move_node(node=node, to=NodeState.LOST, now=now, reason=reason, text=f"{node.name} is lost. {reason}")
            silence.tell_jobs(node)
        silence.give_up(silences, now=now)
    silence.release(silences)


def settle_gangs(*, now: datetime) -> None:
    """What every launched job's replicas call for, in case the event that should have said so was lost."""
    for job_id in Job.objects.filter(status__in=LAUNCHED).values_list("pk", flat=True):
        gang.advance(job_id=job_id, now=now)


def enforce_time_limits(*, now: datetime) -> None:
    """Jobs whose processes have been at work longer than they were given, over all launches, are ended."""
    for job_id in Job.objects.filter(
        status=JobStatus.RUNNING.value, spec__time_limit_s__gt=0, started_at__isnull=False
    ).values_list("pk", flat=True):
        with transaction.atomic():
            job = Job.objects.select_for_update().get(pk=job_id)
            limit_s = job.typed_spec.time_limit_s
            if job.status == JobStatus.RUNNING and _at_work(job, now) > timedelta(seconds=limit_s):
                reason = f"It ran longer than its time limit of {limit_s} s."
                gang.end_attempt(job=job, end=End(Cause.TIME_LIMIT, reason), now=now)
                gang.advance(job_id=job.pk, now=now)


def _at_work(job: Job, now: datetime) -> timedelta:
    """How long all processes of a job were at work, over its launches: neither waiting nor pauses count."""
    spans = Attempt.objects.filter(job=job).values_list("running_at", "ended_at")
    return sum(((ended or now) - began for began, ended in spans if began), timedelta())


def stop_hung_gangs(*, now: datetime) -> None:
    """Gangs of which nothing was heard for longer than they may be silent, while ingest was listening."""
    listening_since = _listening_since(now)
    if listening_since is not None:
        hangs.stop_hung(listening_since=listening_since, now=now)


def resend_commands(*, now: datetime) -> None:
    """Commands that nobody acknowledged."""
    outbox.resend(now=now)


def renew_permits(*, now: datetime) -> None:
    """Launches that were acknowledged, and have not begun, stay permitted."""
    outbox.renew_permits()


def dispatch_waiting(*, now: datetime) -> None:
    """Jobs whose gang fits now."""
    dispatch.dispatch_waiting(now=now)


def advance_strategy_tests(*, now: datetime) -> None:
    """Strategy tests whose run has ended."""
    strategy_tests.advance(now=now)


def tidy(*, now: datetime) -> None:
    """Rows that mean nothing any more."""
    JoinToken.objects.filter(expires_at__lt=now - TOKENS_KEPT).delete()
    # What one process of a running gang held waits for the one that takes its place.
    ended = Replica.objects.filter(held=True, status=ReplicaStatus.EXITED.value)
    awaited = ended.filter(superseded=False, job__status=JobStatus.RUNNING.value).exclude(replacement=None)
    ended.exclude(pk__in=awaited).update(held=False)


def _listening_since(now: datetime) -> datetime | None:
    row = ServiceBeat.objects.filter(name=ServiceBeat.INGEST, beat_at__range=_lately(now)).first()
    return row.alive_since if row else None


def _lately(now: datetime) -> tuple[datetime, datetime]:
    """A beat from the future is none: the clock was set."""
    return now - BEAT_BREAK, now + BEAT_BREAK


STEPS: tuple[Callable[..., None], ...] = (
    lose_silent_nodes,
    disagreements.give_up_unlisted,
    disagreements.stop_unknown,
    disagreements.repeat_stops,
    disagreements.give_up_unanswered_launches,
    settle_gangs,
    enforce_time_limits,
    draining.pause_jobs,
    draining.cordon_drained_nodes,
    stop_hung_gangs,
    failing_nodes.cordon_failing,
    resend_commands,
    renew_permits,
    advance_strategy_tests,
    dispatch_waiting,
    node_folders.forget_stored,
    tidy,
)
# These look at jobs that are launched and at processes that have not ended: without any, there is nothing to look at.
OF_WHAT_RUNS = frozenset(
    {
        disagreements.give_up_unlisted,
        disagreements.repeat_stops,
        disagreements.give_up_unanswered_launches,
        settle_gangs,
        enforce_time_limits,
        draining.pause_jobs,
        renew_permits,
    }
)
