"""Which strategy won a test, how surely, and why: as data, and as the one sentence that says it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from orchestrator.domain.strategy_test.measured import Measured, Spread
from worker_agent.protocol.records import StepPart
from worker_agent.protocol.states import Strategy

# Less apart than this is too close to call, however small the spread: a rerun differs by as much.
CLOSE = 1.10
WORTH_SAYING = 0.1
BETWEEN = "between"
IN_WORDS: dict[str, str] = {
    StepPart.INPUT: "waits for input",
    StepPart.WAIT: "waits for the slowest replica",
    StepPart.COMMUNICATION: "sums gradients",
    StepPart.APPLY: "goes into the optimizer",
    StepPart.HOST: "is Python between two calls",
    BETWEEN: "is spent between steps: validation, checkpoints, callbacks",
}


@dataclass(frozen=True)
class Result:
    """A candidate with all that was measured of it. `label` says its layout."""

    place: int
    label: str
    strategy: Strategy
    runs: Sequence[Measured]

    @property
    def rate(self) -> Spread | None:
        """Examples a second."""
        return Spread.of([run.examples_per_s for run in self.runs])

    @property
    def to_target(self) -> Spread | None:
        """Seconds to the target; None unless each run reached it."""
        reached = [run.target_s for run in self.runs if run.target_s is not None]
        return Spread.of(reached) if len(reached) == len(self.runs) else None

    @property
    def shares(self) -> dict[str, float]:
        """What takes a step's time, by part (0 to 1); `BETWEEN` is what is no part of a step. Empty if not measured."""
        told = [run for run in self.runs if sum(run.parts.values())]
        whole = [max(run.step_time_ms, sum(run.parts.values())) for run in told]
        if not told:
            return {}
        shares: dict[str, float] = {}
        for part in StepPart:
            shares[part] = median(run.parts.get(part, 0.0) / ms for run, ms in zip(told, whole, strict=True))
        return {**shares, BETWEEN: max(0.0, 1 - sum(shares.values()))}

    def efficiency(self, one_device: Spread | None) -> float | None:
        """Of what as many single devices would do, 0 to 1 and, where caches help, above."""
        rate = self.rate
        devices = self.runs[0].devices if self.runs else 0
        if rate is None or one_device is None or not one_device.median or not devices:
            return None
        return rate.median / (devices * one_device.median)


@dataclass(frozen=True)
class Verdict:
    """`place` won (None: nobody did); not `is_sure` where another may be as good. `sentence` says it with figures."""

    place: int | None
    sentence: str
    is_sure: bool = False


def one_device_rate(results: Sequence[Result]) -> Spread | None:
    """The base of all efficiencies, if it was measured."""
    return next((each.rate for each in results if each.strategy is Strategy.ONE_DEVICE and each.rate), None)


def verdict(results: Sequence[Result], *, until_target: str = "") -> Verdict:
    """By examples a second or, where there is a target (in words), by the time to it."""
    judged = [
        (each, figure, _goodness(figure, falls=bool(until_target)))
        for each in results
        if (figure := each.to_target if until_target else each.rate)
    ]
    if not judged:
        why = f"No candidate reached {until_target}." if until_target else "No candidate was measured."
        return Verdict(None, why)
    judged.sort(key=lambda row: -row[2])
    best, figure, goodness = judged[0]
    if len(judged) == 1:
        return Verdict(best.place, f"Only {best.label} was measured: {_in_words(figure, until_target)}.")
    rival, rivals, its = judged[1]
    if goodness < CLOSE * its or figure.overlaps(rivals):
        told = f"{best.label} {_in_words(figure, until_target)}, {rival.label} {_in_words(rivals, until_target)}"
        return Verdict(best.place, f"Too close to call: {told}.")
    told = f"{best.label} is {goodness / its:.2f} × as fast as {rival.label}"
    if until_target:
        told = f"{best.label} reaches {until_target} {goodness / its:.2f} × as fast as {rival.label}"
    told += f": {_in_words(figure, until_target)} against {_in_words(rivals, until_target)}."
    return Verdict(best.place, " ".join(filter(None, [told, _why(results, rival)])), is_sure=True)


def _why(results: Sequence[Result], loser: Result) -> str:
    """What takes the loser's time, as far as that was measured."""
    efficiency = loser.efficiency(one_device_rate(results))
    held = {part: share for part, share in loser.shares.items() if part != StepPart.COMPUTE}
    most = max(held, key=lambda part: held[part], default="")
    told = f"{held[most] * 100:.0f} % of its time {IN_WORDS[most]}" if held.get(most, 0.0) >= WORTH_SAYING else ""
    if efficiency is not None and loser.runs[0].devices > 1:
        efficient = f"{loser.label} is {efficiency * 100:.0f} % as efficient as single devices"
        return f"{efficient}; {told}." if told else f"{efficient}."
    return f"{loser.label}: {told}." if told else ""


def _goodness(figure: Spread, *, falls: bool) -> float:
    if falls:
        return 1 / figure.median if figure.median else float("inf")
    return figure.median


def _in_words(figure: Spread, until_target: str) -> str:
    unit = "s" if until_target else "examples/s"
    half = max(figure.high - figure.median, figure.median - figure.low)
    digits = 0 if figure.median >= 100 else 1 if figure.median >= 10 else 2
    return f"{figure.median:.{digits}f} ± {half:.{digits}f} {unit}"
