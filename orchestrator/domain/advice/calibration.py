"""The constants of the cost model: usual ones, those fitted on trainings of a cluster, and what later runs correct.

The model is linear: a step is the sum of its terms, each an amount in ms times a constant of its strategy. `fitted`
finds the constants by non-negative least squares of the relative error. `corrections` is one factor a strategy, found
from runs whose prediction was kept. Both are pure: whoever forgets the runs has reset them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log
from statistics import median

from worker_agent.protocol.records import StepPart
from worker_agent.protocol.states import DeviceKind, Strategy

Constants = Mapping[str, float]
Layout = str

SWEEPS = 2000
ROUNDS = 6
SETTLED = 1e-6
# How strongly the usual constants hold against the runs: hardly, but where these cannot tell two constants apart.
PRIOR = 1e-3
# Runs that count for a correction, how many are worth as much as the formula, and how far it may go.
RUNS_MAX = 20
RUNS_TRUSTED = 3
FACTOR_MAX = 1.5


@dataclass(frozen=True)
class Term:
    """`ms` of one part of a step, to be multiplied by the constant of that name ("": by 1)."""

    part: StepPart
    constant: str
    ms: float


Formula = Callable[[Constants], Sequence[Term]]
"""The terms of one layout for one model. Queueing makes some of them depend on the constants themselves."""


def layout_of(strategy: Strategy, device: DeviceKind) -> Layout:
    """What has constants of its own: `mirrored on cpu`."""
    return f"{strategy} on {device}"


# compute: what a job costs beside the bare loop; apply: the same of the optimizer; fixed: ms a step; variables: ms a
# variable; bytes: how much slower than the bare link; rows, rows_fixed: the same of the gathered rows of tables.
# CPU: fitted on trainings of ten models by two processes on one machine. GPU, tensor parallel and pipeline: not
# measured, a guess of what launches and copies cost.
_SERVED = {"compute": 1.0, "fixed": 6.8, "variables": 0.23, "bytes": 0.6}
_ON_CPU: Mapping[Strategy, Constants] = {
    Strategy.ONE_DEVICE: {"compute": 1.0},
    Strategy.MIRRORED: {"compute": 1.0, "apply": 1.0, "variables": 0.16, "bytes": 1.0},
    Strategy.CENTRAL_STORAGE: {"compute": 1.0, "apply": 1.0, "variables": 0.18, "bytes": 0.17},
    Strategy.MULTI_WORKER_MIRRORED: {"compute": 1.0, "fixed": 1.9, "bytes": 1.5, "rows_fixed": 1.3, "rows": 3.5},
    Strategy.PARAMETER_SERVER: _SERVED,
    Strategy.TENSOR_PARALLEL: {"compute": 1.0, "fixed": 5.0, "bytes": 1.0},
    Strategy.PIPELINE: {"compute": 1.0, "fixed": 5.0, "bytes": 1.0},
}
_ON_GPU: Mapping[Strategy, Constants] = {
    Strategy.ONE_DEVICE: {"compute": 1.0},
    Strategy.MIRRORED: {"compute": 1.0, "apply": 1.0, "fixed": 0.1, "bytes": 1.0, "rows": 1.0},
    Strategy.CENTRAL_STORAGE: {"compute": 1.0, "apply": 1.0, "variables": 0.05, "bytes": 1.0},
    Strategy.MULTI_WORKER_MIRRORED: {"compute": 1.0, "fixed": 0.2, "bytes": 1.0, "rows": 1.0},
    Strategy.PARAMETER_SERVER: _SERVED,
    Strategy.TENSOR_PARALLEL: {"compute": 1.0, "fixed": 1.0, "bytes": 1.0},
    Strategy.PIPELINE: {"compute": 1.0, "fixed": 1.0, "bytes": 1.0},
}
USUAL: Mapping[Layout, Constants] = {
    layout_of(strategy, device): constants
    for device, table in ((DeviceKind.CPU, _ON_CPU), (DeviceKind.GPU, _ON_GPU))
    for strategy, constants in table.items()
}
"""Of a cluster that was never calibrated."""
LEAST = {"compute": 0.5, "apply": 0.5}
"""What a constant is at least; 0 for the others."""


@dataclass(frozen=True)
class Observed:
    """A run that has a prediction: of the formula without any correction, and what its steps took."""

    layout: Layout
    formula_ms: float
    measured_ms: float


@dataclass(frozen=True)
class Correction:
    """`factor` for predicted times, from `runs` whose measured times were `ratio` times the predicted ones (median).

    It stays near 1 while runs are few, and is `held` at the bound where they differ more."""

    factor: float
    runs: int
    ratio: float
    held: bool


@dataclass(frozen=True)
class Calibration:
    """What was learnt on a cluster. Empty: nothing was, and the usual constants serve."""

    constants: Mapping[Layout, Constants] = field(default_factory=dict)
    corrections: Mapping[Layout, Correction] = field(default_factory=dict)

    def of(self, layout: Layout) -> Constants:
        """The constants of a strategy on a kind of device; the usual ones where nothing was fitted."""
        return {**USUAL[layout], **self.constants.get(layout, {})}

    def is_fitted(self, layout: Layout) -> bool:
        """Whether trainings on this cluster gave its constants."""
        return layout in self.constants

    def factor(self, layout: Layout) -> float:
        """What later runs correct it by."""
        found = self.corrections.get(layout)
        return found.factor if found else 1.0


def step_ms(terms: Sequence[Term], constants: Constants) -> float:
    """The whole step."""
    return sum(term.ms * _value(term, constants) for term in terms)


def parts_ms(terms: Sequence[Term], constants: Constants) -> dict[StepPart, float]:
    """The step by its parts; together they are the whole."""
    parts = dict.fromkeys(StepPart, 0.0)
    for term in terms:
        parts[term.part] += term.ms * _value(term, constants)
    return parts


def _value(term: Term, constants: Constants) -> float:
    return constants.get(term.constant, 0.0) if term.constant else 1.0


def fitted(layout: Layout, runs: Sequence[tuple[Formula, float]]) -> Constants:
    """The constants from runs of one layout, each its formula and the measured step in ms (above 0).

    The sum of (1 - predicted / measured)² is least, by coordinate descent with each constant at its least or above.
    Where the runs leave a constant open, it stays near the usual one. Queueing depends on the constants, so it goes
    round.
    """
    usual = USUAL[layout]
    constants: Constants = usual
    for _ in range(ROUNDS if runs else 0):
        found = _least_squares([(formula(constants), measured) for formula, measured in runs], usual)
        if all(abs(found[name] - constants[name]) < SETTLED for name in usual):
            return found
        constants = found
    return constants


def _least_squares(runs: Sequence[tuple[Sequence[Term], float]], usual: Constants) -> Constants:
    names = list(usual)
    rows = [
        [sum(term.ms for term in terms if term.constant == name) / measured for name in names]
        for terms, measured in runs
    ]
    rests = [1 - sum(term.ms for term in terms if not term.constant) / measured for terms, measured in runs]
    values = [usual[name] for name in names]
    for _ in range(SWEEPS):
        moved = 0.0
        for place, name in enumerate(names):
            column = [row[place] for row in rows]
            left = [
                rest - _dot(row, values) + row[place] * values[place] for row, rest in zip(rows, rests, strict=True)
            ]
            energy = _dot(column, column)
            weight = PRIOR * energy + 1e-12
            best = (_dot(column, left) + weight * usual[name]) / (energy + weight)
            best = max(LEAST.get(name, 0.0), best)
            moved, values[place] = max(moved, abs(best - values[place])), best
        if moved < SETTLED:
            break
    return dict(zip(names, values, strict=True))


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def corrections(observed: Sequence[Observed]) -> dict[Layout, Correction]:
    """A factor for each layout from runs, the oldest first; only the last ones count. Times are above 0."""
    by_layout: dict[Layout, list[float]] = {}
    for run in observed:
        by_layout.setdefault(run.layout, []).append(log(run.measured_ms / run.formula_ms))
    return {layout: _correction(ratios[-RUNS_MAX:]) for layout, ratios in by_layout.items()}


def _correction(ratios: Sequence[float]) -> Correction:
    runs, ratio = len(ratios), median(ratios)
    wanted = ratio * runs / (runs + RUNS_TRUSTED)
    allowed = max(-log(FACTOR_MAX), min(log(FACTOR_MAX), wanted))
    return Correction(exp(allowed), runs, exp(ratio), held=allowed != wanted)
