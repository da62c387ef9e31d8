"""The ledger of a job's restarts, read from its attempts and replacements. Pages and REST call this.

Time is lost from the last step that was heard of. A launch, or part of a gang, that took none loses it from when all
its processes were at work; a launch that never was, together with the one before it, or else from when it was
launched. So no moment counts twice. A script that tells no steps loses it from its failure: what it did is not known.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import zip_longest
from typing import NamedTuple

from django.db.models import Min

from orchestrator.domain.gang.separable_parts import HOLD_VARIABLES
from orchestrator.models import Attempt, Job, Replacement, Replica
from worker_agent.protocol.causes import Blame
from worker_agent.protocol.states import Cause, JobStatus, Kind


class RestartView(NamedTuple):
    """An attempt that failed and was, or is to be, followed by another one; or, with `replicas`, processes of an
    attempt that were launched anew while the others went on.

    `counted` against the job's `max_restarts`; `node` is that of the process that failed. `step_resumed`, `steps_lost`
    (steps) are None until the next attempt is launched, `running_at` until every process of it was at work.
    `seconds_lost` (seconds) are those from `lost_since` until then. Where the training went on all the while,
    `step_resumed` stays None and `seconds_lost` is 0. After a pause that a person ended no time is told: both that and
    `lost_since` are None.
    """

    attempt: int
    cause: str
    reason: str
    counted: bool
    node: str
    failed_at: datetime
    step_reached: int
    step_resumed: int | None
    steps_lost: int | None
    running_at: datetime | None
    lost_since: datetime | None
    seconds_lost: float | None
    replicas: list[str] = []


def of_job(job: Job) -> list[RestartView]:
    """All there are, first one first."""
    replicas = list(job.replicas.all())
    attempts = list(job.attempts.select_related("failed_on").order_by("number"))
    parts = list(_parts(job, replicas, {attempt.number: attempt.running_at for attempt in attempts}))
    return sorted([*_launches(job, replicas, attempts, parts), *parts], key=lambda view: view.failed_at)


def _launches(
    job: Job, replicas: Sequence[Replica], attempts: Sequence[Attempt], parts: Sequence[RestartView]
) -> Iterator[RestartView]:
    failed = job.replicas.exclude(cause__in=("", Cause.COMPLETED.value, Cause.STOPPED.value)).filter(superseded=False)
    firsts = failed.order_by().values("attempt").annotate(first=Min("ended_at")).values_list("attempt", "first")
    first_failed = dict(firsts)
    resumed = set(job.events.filter(kind="job_submitted").exclude(actor=None).values_list("attempt", flat=True))
    tells_steps = job.typed_spec.kind is Kind.RECIPE
    since: datetime | None = None
    for attempt, onward in zip_longest(attempts, attempts[1:]):
        if attempt.ended_at is None or (onward is None and job.status != JobStatus.SUBMITTED):
            continue
        failed_at = first_failed.get(attempt.number) or attempt.ended_at
        if attempt.number in resumed:  # by a person, who had let it rest
            since = None
        elif attempt.running_at is None:
            since = since or attempt.started_at
        else:
            own = [row for row in replicas if row.attempt == attempt.number]
            began = [attempt.running_at, *_began_anew(parts, attempt.number)]
            since = _last_at_work(own, began, failed_at) if tells_steps or _steps(own) else failed_at
        yield _launch(attempt, onward, failed_at=failed_at, lost_since=since)


def _launch(
    attempt: Attempt, onward: Attempt | None, *, failed_at: datetime, lost_since: datetime | None
) -> RestartView:
    reached = attempt.step_reached or 0
    resumed = (onward.resumed_step or 0) if onward else None
    running_at = onward.running_at if onward else None
    return RestartView(
        attempt=attempt.number,
        cause=attempt.cause,
        reason=attempt.reason,
        counted=attempt.blame == Blame.PROGRAM,
        node=attempt.failed_on.name if attempt.failed_on else "",
        failed_at=failed_at,
        step_reached=reached,
        step_resumed=resumed,
        steps_lost=max(reached - resumed, 0) if resumed is not None else None,
        running_at=running_at,
        lost_since=lost_since,
        seconds_lost=(running_at - lost_since).total_seconds() if running_at and lost_since else None,
    )


def _parts(job: Job, replicas: Sequence[Replica], running_at: dict[int, datetime | None]) -> Iterator[RestartView]:
    views: list[RestartView] = []
    for row in job.replacements.select_related("failed").prefetch_related("replaced"):
        number, failed_at = row.failed.attempt, row.failed.ended_at or job.created_at
        members = {(each.role, each.index) for each in row.replaced.all()}
        gang = [each for each in replicas if each.attempt == number and (each.role, each.index) in members]
        own = [each for each in gang if each.started_at and each.started_at < failed_at]
        began = [running_at.get(number), *_began_anew(views, number)]
        views.append(_part(row, failed_at=failed_at, lost_since=_last_at_work(own, began, failed_at)))
    yield from views


def _part(row: Replacement, *, failed_at: datetime, lost_since: datetime) -> RestartView:
    failed, replaced = row.failed, list(row.replaced.all())
    goes_back = any(each.role in HOLD_VARIABLES for each in replaced)
    resumed = row.step_resumed
    lost = max(row.step_reached - resumed, 0) if resumed is not None else None
    seconds_lost = (row.back_at - lost_since).total_seconds() if row.back_at else None
    return RestartView(
        attempt=failed.attempt,
        cause=failed.cause,
        reason=row.reason,
        counted=failed.typed_ending is not None and failed.typed_ending.blame is Blame.PROGRAM,
        node=failed.node_name,
        failed_at=failed_at,
        step_reached=row.step_reached,
        step_resumed=resumed,
        steps_lost=lost if goes_back else 0,
        running_at=row.back_at,
        lost_since=lost_since if goes_back else None,
        seconds_lost=seconds_lost if goes_back else 0.0,
        replicas=[each.words for each in replaced],
    )


def _began_anew(parts: Sequence[RestartView], attempt: int) -> list[datetime | None]:
    """When parts for which the whole gang had waited were at work again."""
    return [view.running_at for view in parts if view.attempt == attempt and view.lost_since]


def _last_at_work(replicas: Sequence[Replica], began: Sequence[datetime | None], failed_at: datetime) -> datetime:
    """The latest step of theirs that was heard of, or when they `began` if none came after that."""
    moments = [*_steps(replicas), *(moment for moment in began if moment)]
    return min(max(moments, default=failed_at), failed_at)


def _steps(replicas: Sequence[Replica]) -> list[datetime]:
    return [row.stepped_at for row in replicas if row.stepped_at is not None]
