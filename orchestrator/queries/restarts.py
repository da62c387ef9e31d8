"""The ledger of a job's restarts, read from its attempts and replacements. Pages and REST call this."""

from collections.abc import Sequence
from datetime import datetime
from itertools import zip_longest
from typing import NamedTuple

from django.db.models import Min

from orchestrator.domain.restarts import Blame, blame_for
from orchestrator.domain.roles import HOLD_VARIABLES
from orchestrator.models import Attempt, Job, Replacement, Replica
from worker_agent.protocol.states import Cause, JobStatus


class RestartView(NamedTuple):
    """An attempt that failed and was, or is to be, followed by another one; or, with `replicas`, processes of an
    attempt that were launched anew while the others went on.

    `counted` against the job's `max_restarts`; `node` is that of the process that failed. `step_resumed`, `steps_lost`
    (steps) are None until the next attempt is launched, `running_at`, `seconds_lost` (seconds from `failed_at` on)
    until every process of it was at work. Where the training went on all the while, `step_resumed` stays None.
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
    seconds_lost: float | None
    replicas: list[str] = []


def of_job(job: Job) -> list[RestartView]:
    """All there are, first one first."""
    attempts = list(job.attempts.select_related("failed_on").order_by("number"))
    rows = list(job.replicas.all())
    failed = job.replicas.exclude(cause__in=("", Cause.COMPLETED.value, Cause.STOPPED.value)).filter(superseded=False)
    firsts = failed.order_by().values("attempt").annotate(first=Min("ended_at")).values_list("attempt", "first")
    failed_at = dict(firsts)
    whole = [
        _view(attempt, onward, failed_at.get(attempt.number))
        for attempt, onward in zip_longest(attempts, attempts[1:])
        if attempt.ended_at is not None and (onward is not None or job.status == JobStatus.SUBMITTED)
    ]
    parts = [_part(row, rows) for row in job.replacements.all()]
    return sorted([*whole, *parts], key=lambda view: view.failed_at)


def _view(attempt: Attempt, onward: Attempt | None, first: datetime | None) -> RestartView:
    failed_at = first or attempt.ended_at or attempt.started_at
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
        seconds_lost=(running_at - failed_at).total_seconds() if running_at else None,
    )


def _part(row: Replacement, replicas: Sequence[Replica]) -> RestartView:
    wanted = (row.attempt, row.failed, row.at)
    failed = next((each for each in replicas if (each.attempt, each.words, each.ended_at) == wanted), None)
    blame = Blame.NOBODY
    if failed and failed.cause:
        blame = blame_for(Cause(failed.cause), failed.signal, failed.reason)
    goes_back = any(words.partition(" ")[0] in HOLD_VARIABLES for words in row.replicas)
    resumed = row.step_resumed
    lost = max(row.step_reached - resumed, 0) if resumed is not None else None
    return RestartView(
        attempt=row.attempt,
        cause=row.cause,
        reason=row.reason,
        counted=blame is Blame.PROGRAM,
        node=row.node_name,
        failed_at=row.at,
        step_reached=row.step_reached,
        step_resumed=resumed,
        steps_lost=lost if goes_back else 0,
        running_at=row.back_at,
        seconds_lost=(row.back_at - row.at).total_seconds() if row.back_at else None,
        replicas=list(row.replicas),
    )
