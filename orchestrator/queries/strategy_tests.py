"""Reads of strategy tests: lists, one test, and what its candidates come to. Pages, REST and services call these."""

from dataclasses import dataclass

import msgspec
from django.db.models import Prefetch, QuerySet

from orchestrator.domain.strategy_test.measured import Measured, Spread
from orchestrator.domain.strategy_test.schedule import Contender, beaten
from orchestrator.domain.strategy_test.verdict import Result, Verdict, one_device_rate, verdict
from orchestrator.models import Candidate, Job, Run, StrategyTest
from orchestrator.queries.errors import NotFound
from orchestrator.queries.jobs import Person, shown_to
from worker_agent.protocol.states import Strategy

PAGE = 50
LOSS = "loss"


@dataclass(frozen=True)
class CandidateView:
    """A candidate with what its runs say together. `status`: waiting, running, measured, beaten, failed, withdrawn."""

    row: Candidate
    status: str
    reason: str
    result: Result
    rate: Spread | None
    step_time_ms: Spread | None
    efficiency: float | None
    epoch_s: float | None
    to_target: Spread | None

    @property
    def last(self) -> Measured | None:
        """The last run that was measured."""
        return self.result.runs[-1] if self.result.runs else None


@dataclass(frozen=True)
class Report:
    """A test as it stands."""

    test: StrategyTest
    candidates: list[CandidateView]
    verdict: Verdict


def page(user: Person, *, before: int | None = None, limit: int = PAGE) -> tuple[list[StrategyTest], int | None]:
    """Tests, the newest first, from the one before id `before` on; and the id to go on with, None on the last page."""
    rows = _whole(user) if before is None else _whole(user).filter(pk__lt=before)
    found = list(rows.order_by("-pk")[: limit + 1])
    return found[:limit], found[limit - 1].pk if len(found) > limit else None


def get(user: Person, test_id: int) -> StrategyTest:
    """One test with its candidates and runs; raises `NotFound`."""
    try:
        return _whole(user).get(pk=test_id)
    except (StrategyTest.DoesNotExist, OverflowError) as error:
        raise NotFound(f"There is no strategy test {test_id}.") from error


def of_job(job: Job) -> StrategyTest | None:
    """The test that this job is a run of."""
    return StrategyTest.objects.filter(candidates__runs__job=job).first()


def _whole(user: Person) -> QuerySet[StrategyTest]:
    runs = Prefetch("runs", Run.objects.select_related("job"))
    tests = StrategyTest.objects.select_related("owner", "cluster")
    return shown_to(user, tests.prefetch_related(Prefetch("candidates", Candidate.objects.prefetch_related(runs))))


def contenders(test: StrategyTest) -> list[Contender]:
    """The candidates as the schedule sees them; of runs that have ended."""
    return [
        Contender(each.place, [measured_of(run) for run in each.runs.all() if run.is_over], is_out=each.withdrawn)
        for each in test.candidates.all()
    ]


def report(test: StrategyTest) -> Report:
    """What the runs that have ended say."""
    rows = list(test.candidates.all())
    results = [
        Result(
            row.place,
            row.label,
            Strategy(row.typed_spec.strategy),
            [m for run in row.runs.all() if (m := measured_of(run))],
        )
        for row in rows
    ]
    base, behind = one_device_rate(results), beaten(contenders(test))
    views = [
        _view(row, result, base, behind.get(row.place), until_target=bool(test.target_metric))
        for row, result in zip(rows, results, strict=True)
    ]
    return Report(test, views, verdict(results, until_target=target_in_words(test)))


def target_in_words(test: StrategyTest) -> str:
    """`val_loss 0.1`, or "" where there is none."""
    return f"{test.target_metric} {test.target_value:g}" if test.target_value is not None else ""


def _view(
    row: Candidate, result: Result, base: Spread | None, behind: float | None, *, until_target: bool
) -> CandidateView:
    runs = list(row.runs.all())
    failed = next((run.reason for run in runs if run.is_over and run.measured is None), "")
    status, reason = "waiting", ""
    if any(not run.is_over for run in runs):
        status = "running"
    elif failed:
        status, reason = "failed", failed
    elif row.withdrawn:
        status = "withdrawn"
    elif behind and not until_target:
        status, reason = "beaten", f"The best is {behind:.1f} × as fast."
    elif runs:
        status = "measured"
    epochs = [run.epoch_s for run in result.runs if run.epoch_s is not None]
    return CandidateView(
        row=row,
        status=status,
        reason=reason,
        result=result,
        rate=result.rate,
        step_time_ms=Spread.of([run.step_time_ms for run in result.runs]),
        efficiency=result.efficiency(base),
        epoch_s=spread.median if (spread := Spread.of(epochs)) else None,
        to_target=result.to_target,
    )


def measured_of(run: Run) -> Measured | None:
    """What the run measured; None while it runs, and where it failed."""
    return msgspec.convert(run.measured, Measured) if run.measured is not None else None
