"""The ledger of a job's restarts, read from its attempts and replacements. Pages and REST call this.

Time is lost from the last step that was heard of. A launch, or part of a gang, that took none loses it from when all
its processes were at work; a launch that never was, together with the one before it, or else from when it was
launched. So no moment counts twice. A script that tells no steps loses it from its failure: what it did is not known.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import zip_longest

from orchestrator.domain.gang.separable_parts import HOLD_VARIABLES
from orchestrator.models import Attempt, Job, Replica
from worker_agent.protocol.causes import Blame
from worker_agent.protocol.states import Cause, JobStatus, Kind

NOT_FAILED = frozenset({"", Cause.COMPLETED, Cause.STOPPED})


@dataclass(frozen=True)
class Restart:
    """An attempt that failed and was, or is to be, followed by another one; or, with `replicas`, processes of an
    attempt that were launched anew while the others waited, or `went_on`.

    `counted` against the job's `max_restarts`; `node` is that of the process that failed. `step_resumed` is None until
    the next attempt is launched, and where no step was lost; `running_at` until every process of it was at work. Time
    is lost from `lost_since` until then: None where the others went on, and after a pause that a person ended.
    """

    attempt: int
    cause: str
    reason: str
    counted: bool
    node: str
    failed_at: datetime
    step_reached: int
    step_resumed: int | None
    running_at: datetime | None
    lost_since: datetime | None
    replicas: list[str] = field(default_factory=list)
    went_on: bool = False

    @property
    def steps_lost(self) -> int | None:
        """None until the next attempt is launched."""
        if self.went_on:
            return 0
        return None if self.step_resumed is None else max(self.step_reached - self.step_resumed, 0)

    @property
    def seconds_lost(self) -> float | None:
        """None until all are at work again, and after a pause that a person ended."""
        if self.went_on:
            return 0.0
        return (self.running_at - self.lost_since).total_seconds() if self.running_at and self.lost_since else None

    @property
    def away_s(self) -> float | None:
        """How long its processes were away; None until they are back."""
        return (self.running_at - self.failed_at).total_seconds() if self.running_at else None


def of_job(job: Job) -> list[Restart]:
    """All there are, first one first."""
    gangs: dict[int, list[Replica]] = {}
    for row in job.replicas.all():
        gangs.setdefault(row.attempt, []).append(row)
    attempts = list(job.attempts.select_related("failed_on").order_by("number"))
    parts = _parts(job, gangs, {attempt.number: attempt.running_at for attempt in attempts})
    return sorted([*_launches(job, gangs, attempts, parts), *parts], key=lambda restart: restart.failed_at)


def _launches(
    job: Job, gangs: dict[int, list[Replica]], attempts: Sequence[Attempt], parts: Sequence[Restart]
) -> Iterator[Restart]:
    resumed = set(job.events.filter(kind="job_submitted").exclude(actor=None).values_list("attempt", flat=True))
    tells_steps = job.typed_spec.kind is Kind.RECIPE
    since: datetime | None = None
    for attempt, onward in zip_longest(attempts, attempts[1:]):
        if attempt.ended_at is None or (onward is None and job.status != JobStatus.SUBMITTED):
            continue
        gang = gangs.get(attempt.number, [])
        failed = [row.ended_at for row in gang if row.ended_at and not (row.superseded or row.cause in NOT_FAILED)]
        failed_at = min(failed, default=attempt.ended_at)
        if attempt.number in resumed:  # by a person, who had let it rest
            since = None
        elif attempt.running_at is None:
            since = since or attempt.started_at
        else:
            began = [attempt.running_at, *_began_anew(parts, attempt.number)]
            since = _last_at_work(gang, began, failed_at) if tells_steps or _steps(gang) else failed_at
        yield Restart(
            attempt=attempt.number,
            cause=attempt.cause,
            reason=attempt.reason,
            counted=attempt.blame == Blame.PROGRAM,
            node=attempt.failed_on.name if attempt.failed_on else "",
            failed_at=failed_at,
            step_reached=attempt.step_reached or 0,
            step_resumed=(onward.resumed_step or 0) if onward else None,
            running_at=onward.running_at if onward else None,
            lost_since=since,
        )


def _parts(job: Job, gangs: dict[int, list[Replica]], running_at: dict[int, datetime | None]) -> list[Restart]:
    parts: list[Restart] = []
    for row in job.replacements.select_related("failed").prefetch_related("replaced"):
        failed, replaced = row.failed, list(row.replaced.all())
        number, failed_at = failed.attempt, failed.ended_at or job.created_at
        members = {(each.role, each.index) for each in replaced}
        gang = [each for each in gangs[number] if (each.role, each.index) in members]
        own = [each for each in gang if each.started_at and each.started_at < failed_at]
        began = [running_at.get(number), *_began_anew(parts, number)]
        went_on = not any(each.role in HOLD_VARIABLES for each in replaced)
        parts.append(
            Restart(
                attempt=number,
                cause=failed.cause,
                reason=row.reason,
                counted=failed.typed_ending is not None and failed.typed_ending.blame is Blame.PROGRAM,
                node=failed.node_name,
                failed_at=failed_at,
                step_reached=row.step_reached,
                step_resumed=row.step_resumed,
                running_at=row.back_at,
                lost_since=None if went_on else _last_at_work(own, began, failed_at),
                replicas=[each.words for each in replaced],
                went_on=went_on,
            )
        )
    return parts


def _began_anew(parts: Sequence[Restart], attempt: int) -> list[datetime | None]:
    """When parts for which the whole gang had waited were at work again."""
    return [view.running_at for view in parts if view.attempt == attempt and view.lost_since]


def _last_at_work(replicas: Sequence[Replica], began: Sequence[datetime | None], failed_at: datetime) -> datetime:
    """The latest step of theirs that was heard of, or when they `began` if none came after that."""
    moments = [*_steps(replicas), *(moment for moment in began if moment)]
    return min(max(moments, default=failed_at), failed_at)


def _steps(replicas: Sequence[Replica]) -> list[datetime]:
    return [row.stepped_at for row in replicas if row.stepped_at is not None]
