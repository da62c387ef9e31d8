"""What the pages of a strategy test show: its candidates as rows, where it stands, and how it was measured."""

from dataclasses import dataclass

from dashboard.templatetags.trainyard import MISSING, figure, group, metric_name, to_the_second
from dashboard.views.compare import MOST, colour_of, settings_beside
from dashboard.views.job.settings import settings_in
from dashboard.views.job.step_time import LABELS, Slice, slices_of
from orchestrator.domain.strategy_test.measured import RERUN, WARM_UP, Spread
from orchestrator.domain.strategy_test.schedule import FAR_BEHIND, ROUNDS_MORE
from orchestrator.domain.words import counted
from orchestrator.queries import strategy_tests
from orchestrator.queries.rows import Job, Run, StrategyTest, TestStatus, User
from orchestrator.queries.strategy_tests import CandidateView, Report
from worker_agent.protocol.records import StepPart
from worker_agent.protocol.states import Kind, Strategy

# As which state of a job the silhouette and colour of a word are.
LOOKS = {
    **{TestStatus.FINISHED: "succeeded", "measured": "succeeded", "waiting": "submitted"},
    **{"beaten": "stopped", "withdrawn": "stopped"},
}
WORDS = {"measured": "Measured", "waiting": "Waiting", "beaten": "Cannot win", "withdrawn": "Withdrawn"}
PARTS = {part: LABELS[part] for part in StepPart}


@dataclass(frozen=True)
class Row:
    """A candidate as a row of the table. Figures are in words, with their spread where there is one."""

    view: CandidateView
    colour: int
    is_best: bool
    look: str
    word: str
    rate: str
    step_ms: str
    efficiency: str
    target: str
    final: list[tuple[str, str]]
    slices: list[Slice]
    runs: list[Run]

    @property
    def half(self) -> str:
        """How far the farthest run is from the median rate."""
        return f"± {_half(self.view.rate)}" if self.view.rate else ""

    @property
    def epoch(self) -> str:
        """The time that an epoch takes at this rate."""
        seconds = self.view.epoch_s
        if seconds is None:
            return MISSING
        return to_the_second(seconds) if seconds >= 60 else f"{seconds:.{1 if seconds >= 10 else 2}f} s"

    @property
    def device_hours(self) -> str:
        """Of all its runs."""
        return str(figure(sum(run.device_hours for run in self.view.result.runs))) if self.view.result.runs else MISSING

    @property
    def restarts(self) -> int:
        """Of all its runs."""
        return sum(run.restarts for run in self.view.result.runs)

    @property
    def parts_ms(self) -> float:
        """The step whose parts are shown."""
        return sum(each.ms for each in self.slices)


@dataclass(frozen=True)
class Progress:
    """Where a test that is not over stands: `percent` of the runs that it has at least; `at` is under way."""

    percent: float
    done: int
    runs: int
    at: Run | None
    label: str
    number: int


def context_of(test: StrategyTest, user: User) -> dict[str, object]:
    """Everything that its page and its file print."""
    report = strategy_tests.report(test)
    rows = _rows(report)
    changeable, status = test.may_be_changed_by(user), TestStatus(test.status)
    return {
        "test": test,
        "look": look_of(status),
        "verdict": report.verdict,
        "winner": next((row for row in rows if row.is_best), None),
        "rows": rows,
        "legend": [(part, label) for part, label in PARTS.items() if any(_has(row, part) for row in rows)],
        "is_going_on": status is TestStatus.RUNNING or any(view.status == "running" for view in report.candidates),
        "progress": _progress(test, report) if status in (TestStatus.RUNNING, TestStatus.PAUSED) else None,
        "target": strategy_tests.target_in_words(test),
        "how": _how(test, report),
        "settings": [line for line in settings_beside(_settings(report)) if line.differ],
        "ids": ",".join(str(job.pk) for _place, job, _label in jobs_of(test)),
        "changeable": changeable,
        "can_pause": changeable and status is TestStatus.RUNNING,
        "can_resume": changeable and status in (TestStatus.PAUSED, TestStatus.STOPPED),
        "can_stop": changeable and status in (TestStatus.RUNNING, TestStatus.PAUSED),
        "can_delete": changeable and status in (TestStatus.FINISHED, TestStatus.STOPPED),
        "can_ask": user.may_run_jobs,
    }


def look_of(status: str) -> str:
    """The state whose silhouette and colour a status of a test or a candidate has."""
    return LOOKS.get(status, status)


def jobs_of(test: StrategyTest) -> list[tuple[int, Job, str]]:
    """Of each candidate the last job that is still there: (place, job, label)."""
    found = []
    for row in test.candidates.all():
        jobs = [run.job for run in row.runs.all() if run.job is not None]
        if jobs:
            found.append((row.place, jobs[-1], row.label))
    return found[:MOST]


def _rows(report: Report) -> list[Row]:
    longest = max((sum(view.last.parts.values()) for view in report.candidates if view.last), default=0.0)
    best = report.verdict.place if report.verdict.is_sure else None
    return [_row(view, longest, best) for view in report.candidates]


def _row(view: CandidateView, longest: float, best: int | None) -> Row:
    last = view.last
    parts = {part: last.parts.get(part.value, 0.0) for part in PARTS} if last and longest else {}
    return Row(
        view=view,
        colour=colour_of(view.row.place),
        is_best=view.row.place == best,
        look=look_of(view.status),
        word=WORDS.get(view.status, view.status.capitalize()),
        rate=_spread(view.rate),
        step_ms=_spread(view.step_time_ms),
        efficiency=MISSING if view.efficiency is None else f"{view.efficiency * 100:.0f} %",
        target=_spread(view.to_target),
        final=[(metric_name(name), str(figure(value))) for name, value in sorted(last.final.items())] if last else [],
        slices=slices_of(parts, longest) if parts else [],
        runs=list(view.row.runs.all()),
    )


def _has(row: Row, part: StepPart) -> bool:
    return any(each.part is part for each in row.slices)


def _spread(spread: Spread | None) -> str:
    """`812 ± 30`: the median, and how far the farthest run is from it."""
    if spread is None:
        return MISSING
    return f"{_round(spread.median, spread)} ± {_half(spread)}"


def _half(spread: Spread) -> str:
    return _round(max(spread.high - spread.median, spread.median - spread.low), spread)


def _round(value: float, spread: Spread) -> str:
    """As many digits as the median of the spread is known to."""
    if spread.median >= 100:
        return str(group(value))
    return f"{value:.{1 if spread.median >= 10 else 2}f}"


def _progress(test: StrategyTest, report: Report) -> Progress:
    views = [view for view in report.candidates if view.status not in ("failed", "beaten", "withdrawn")]
    done = sum(run.is_over for view in report.candidates for run in view.row.runs.all())
    left = sum(max(0, test.rounds - sum(run.is_over for run in view.row.runs.all())) for view in views)
    at = [(run, view) for view in report.candidates for run in view.row.runs.all() if not run.is_over]
    run, view = at[0] if at else (None, None)
    runs = done + max(left, len(at))
    return Progress(
        percent=100 * done / runs if runs else 0.0,
        done=done,
        runs=runs,
        at=run,
        label=view.row.label if view else "",
        number=view.row.runs.count() if view else 0,
    )


def _settings(report: Report) -> list[list[tuple[str, str]]]:
    return [settings_in(view.row.typed_spec) for view in report.candidates]


def _how(test: StrategyTest, report: Report) -> list[str]:
    """So that a doubter can repeat it."""
    specs = [view.row.typed_spec for view in report.candidates]
    minutes = f"{test.minutes:g} minute{'' if test.minutes == 1 else 's'}"
    ends = f"{test.samples:,} examples or {minutes}".replace(",", " ") if test.samples else f"its epochs or {minutes}"
    target = strategy_tests.target_in_words(test)
    told = [
        f"Each run is a job of its own on {test.cluster.name}. One runs at a time, by turns (A B C, A B C), so that "
        "what changes on the machines meanwhile meets all candidates alike.",
        f"A run ends after {ends}, whichever comes first. Each candidate was to run "
        f"{counted(test.rounds, 'time')}. If that leaves the winner open, those that may still win run up to "
        f"{counted(ROUNDS_MORE, 'time')} more.",
        f"Nobody is left out for being slow, because the time to {target} decides."
        if target
        else f"A candidate that is {FAR_BEHIND:g} × slower than the best after one round is not run again.",
        f"The first {WARM_UP * 100:.0f} % of a run's steps are left out: tracing, and the filling of buffers. Behind "
        "them, examples per second are the steps over wall-clock time, times the batch.",
        f"± is the farthest run from the median. One run alone is given ± {RERUN * 100:.0f} %: the same job, run "
        "again, differs by as much.",
    ]
    if any(spec.strategy is Strategy.ONE_DEVICE for spec in specs):
        told.append("Efficiency: examples per second, over those of one device times the number of devices.")
    else:
        told.append("Efficiency needs One device among the candidates.")
    if specs and specs[0].kind is Kind.RECIPE:
        seeds = ", ".join(dict.fromkeys(str(spec.seed) for spec in specs))
        batches = ", ".join(dict.fromkeys(str(spec.global_batch_size) for spec in specs))
        told.append(f"All read the same data with seed {seeds} and {batches} examples an update.")
    return told
