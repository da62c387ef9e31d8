"""Gangs that hang: found by the sweep, ended with their stacks kept, launched again. The rule is
`domain/gang/hangs.py`.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import F

from orchestrator.domain.gang import hangs
from orchestrator.domain.gang.decisions import End
from orchestrator.domain.gang.hangs import Limits, Rank
from orchestrator.domain.lifecycle import TERMINAL_REPLICA
from orchestrator.models import Job, Replica
from orchestrator.services.gang import gang, gang_facts
from orchestrator.services.gang.watch import Watch
from worker_agent.protocol.records import LONGEST_GAP, LONGEST_STEP
from worker_agent.protocol.states import Cause, JobStatus, Strategy

# A node that was not heard of so lately says nothing of its processes: that is another matter (`reconcile`).
HEARD_WITHIN = timedelta(seconds=10)
UNLESS_SET_S = 300.0
AT_WORK = (JobStatus.LAUNCHING.value, JobStatus.RUNNING.value)
# Since when each node with processes has been heard of without a break: what came later may be late.
HEARD = Watch()


def stop_hung(*, listening_since: datetime, now: datetime) -> None:
    """End every gang that hangs. `listening_since` is since when all that nodes say has been heard."""
    nodes = Replica.objects.live().filter(node__last_seen_at__gte=now - HEARD_WITHIN)
    heard = heard_for({str(pk) for pk in nodes.values_list("node_id", flat=True)})
    limits = limits_now()
    if limits is None or now - listening_since <= timedelta(seconds=limits.least_s):
        return
    silent = Replica.objects.live().filter(
        attempt=F("job__attempt"),
        superseded=False,
        job__status__in=AT_WORK,
        started_at__lt=now - timedelta(seconds=limits.least_s),
    )
    silent = silent.exclude(moved_at__gte=now - timedelta(seconds=limits.least_s))
    for job_id in silent.order_by("job_id").values_list("job_id", flat=True).distinct():
        _look_at(job_id, limits, heard, listening_since, now)


def heard_for(nodes: set[str]) -> Mapping[str, float]:
    """For how many seconds each of these nodes has been heard of at every sweep."""
    return HEARD.observe(dict.fromkeys(nodes, True))


def limits_now() -> Limits | None:
    """As the settings have them, None where nobody looks for hangs; a limit that was set follows no steps. A node that
    is silent for less than it takes to be lost shall not look like a gang that hangs."""
    match settings.HANG_AFTER_S:
        case 0:
            return None
        case None:
            step_s, least_s = UNLESS_SET_S, hangs.LEAST_S
        case step_s:
            least_s = step_s
    step_s, least_s = (max(each, settings.NODE_LOST_AFTER_S) for each in (step_s, least_s))
    return Limits(step_s=step_s, least_s=least_s, phase_s=max(settings.HANG_PHASE_S, step_s))


@transaction.atomic
def _look_at(
    job_id: int, limits: Limits, heard_s: Mapping[str, float], listening_since: datetime, now: datetime
) -> None:
    job = Job.objects.select_for_update().filter(pk=job_id, status__in=AT_WORK).first()
    if job is None:
        return
    live = gang_facts.live(job)
    if not all(row.node and row.node.last_seen_at and row.node.last_seen_at >= now - HEARD_WITHIN for row in live):
        return
    if _is_incomplete(job):
        limits = replace(limits, step_s=limits.phase_s, least_s=limits.phase_s)
    all_heard_s = min((heard_s.get(str(row.node_id), 0.0) for row in live), default=0.0)
    reason = hangs.reason_of_hang(
        [_rank(row) for row in live],
        kind=job.typed_spec.kind,
        total_steps=job.total_steps,
        limits=limits,
        listening_since=max(listening_since, now - timedelta(seconds=all_heard_s)),
        now=now,
    )
    if reason:
        text = f"{reason} So the stacks of all its processes are saved, and the processes are ended."
        gang.end_attempt(job=job, end=End(Cause.HUNG, reason, restart=True, stacks=True), now=now, text=text)


def _is_incomplete(job: Job) -> bool:
    """Whether a part of the gang begins anew, or is about to, while the others may wait for it."""
    if job.typed_spec.strategy is not Strategy.PARAMETER_SERVER:
        return False
    ended = job.replicas.filter(attempt=job.attempt, superseded=False, status__in=TERMINAL_REPLICA)
    return ended.exists() or job.replacements.filter(failed__attempt=job.attempt, back_at=None).exists()


def _rank(row: Replica) -> Rank:
    heard = [moment for moment in (row.started_at, row.moved_at) if moment is not None]
    return Rank(
        who=f"{row.words} on {row.node_name}",
        phase=row.phase,
        step=row.step,
        heard_at=max(heard, default=None),
        longest_gap_s=_seconds(row, LONGEST_GAP) or 0.0,
        longest_step_s=_seconds(row, LONGEST_STEP),
    )


def _seconds(row: Replica, fact: str) -> float | None:
    """What a process told of itself: it may tell anything."""
    told = row.facts.get(fact)
    return float(told) if isinstance(told, int | float) else None
