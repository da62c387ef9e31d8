"""Gangs that hang: found by the sweep, ended with their stacks kept, launched again. The rule is
`domain/gang/hangs.py`.
"""

from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import F

from orchestrator.domain.gang import hangs
from orchestrator.domain.gang.decisions import End
from orchestrator.domain.gang.hangs import Limits, Rank
from orchestrator.models import Job, Replica
from orchestrator.services.gang import gang, gang_facts
from worker_agent.protocol.records import LONGEST_GAP
from worker_agent.protocol.states import Cause, JobStatus

# A node that was not heard of so lately says nothing of its processes: that is another matter (`reconcile`).
HEARD_WITHIN = timedelta(seconds=10)
AT_WORK = (JobStatus.LAUNCHING.value, JobStatus.RUNNING.value)


def stop_hung(*, listening_since: datetime, now: datetime) -> None:
    """End every gang that hangs. `listening_since` is since when all that nodes say has been heard."""
    limits = limits_now()
    if limits is None or now - listening_since <= timedelta(seconds=limits.step_s):
        return
    silent = Replica.objects.live().filter(
        attempt=F("job__attempt"),
        superseded=False,
        job__status__in=AT_WORK,
        started_at__lt=now - timedelta(seconds=limits.step_s),
    )
    silent = silent.exclude(moved_at__gte=now - timedelta(seconds=limits.step_s))
    for job_id in silent.order_by("job_id").values_list("job_id", flat=True).distinct():
        _look_at(job_id, limits, listening_since, now)


def limits_now() -> Limits | None:
    """As the settings have them; None where nobody looks for hangs. A node that is silent for less than it takes to be
    lost shall not look like a gang that hangs."""
    if not settings.HANG_AFTER_S:
        return None
    step_s = max(settings.HANG_AFTER_S, settings.NODE_LOST_AFTER_S)
    return Limits(step_s=step_s, phase_s=max(settings.HANG_PHASE_S, step_s))


@transaction.atomic
def _look_at(job_id: int, limits: Limits, listening_since: datetime, now: datetime) -> None:
    job = Job.objects.select_for_update().filter(pk=job_id, status__in=AT_WORK).first()
    if job is None:
        return
    live = gang_facts.live(job)
    if not all(row.node and row.node.last_seen_at and row.node.last_seen_at >= now - HEARD_WITHIN for row in live):
        return
    reason = hangs.reason_of_hang(
        [_rank(row) for row in live],
        kind=job.typed_spec.kind,
        total_steps=job.total_steps,
        limits=limits,
        listening_since=listening_since,
        now=now,
    )
    if reason:
        text = f"{reason} So the stacks of all its processes are saved, and the processes are ended."
        gang.end_attempt(job=job, end=End(Cause.HUNG, reason, restart=True, stacks=True), now=now, text=text)


def _rank(row: Replica) -> Rank:
    heard = [moment for moment in (row.started_at, row.moved_at) if moment is not None]
    longest = row.facts.get(LONGEST_GAP, 0.0)
    return Rank(
        who=f"{row.words} on {row.node_name}",
        phase=row.phase,
        step=row.step,
        heard_at=max(heard, default=None),
        longest_gap_s=float(longest) if isinstance(longest, int | float) else 0.0,
    )
