"""One layout predicted: its step with an interval and parts, and what follows from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import sqrt
from statistics import median

from orchestrator.domain.advice.calibration import Calibration, Correction, Formula, Layout, fitted, parts_ms, step_ms
from orchestrator.domain.advice.candidates import Candidate
from orchestrator.domain.advice.cluster import LOSSES_PER_DAY, Cluster
from orchestrator.domain.advice.costs import Situation, input_ms, situation, terms
from orchestrator.domain.advice.memory import Memory, fitting
from orchestrator.domain.advice.workload import Basis, Workload
from worker_agent.protocol.job.job_spec import keeps_checkpoints
from worker_agent.protocol.job.strategies import STRATEGIES
from worker_agent.protocol.records import StepPart
from worker_agent.protocol.states import Role

# The same job run again differs by this much (median), so no interval is narrower.
NOISE = 0.09
# The formula's own, on a calibrated cluster and a probed model: nine of ten are within it.
FORMULA = 0.25
# Each of these makes it this many times as wide.
UNCALIBRATED = 2.0
_WIDER: Mapping[Basis, float] = {
    Basis.PROBED: 1.0,
    Basis.OTHER_CORES: 1.4,
    Basis.OTHER_KERAS: 1.4,
    Basis.OUTSIDE: 2.0,
    Basis.FLOPS: 4.0,
}
# After a lost machine: until it is noticed, a place is found and the processes train again; and what is trained anew
# where the length of an epoch is unknown.
RESTART_S = 60.0
TRAINED_ANEW_S = 300.0
_DAY_S = 86_400.0

Timings = Mapping[str, Sequence[float]]
"""Steps in ms that short runs of real layouts took, by the layout's key."""


@dataclass(frozen=True)
class Prediction:
    """A layout, and what its training would be like. Times are of one optimizer step, or the time between two updates.

    `formula_ms` is what the formula alone says, without correction: kept with a job, to correct later advice by.
    `measured_ms` is set where it was measured for a moment. `goodput` is the share of the time that machine losses
    leave."""

    candidate: Candidate
    found: Situation
    memory: Memory
    formula_ms: float
    step_ms: float
    low_ms: float
    high_ms: float
    parts: Mapping[StepPart, float]
    goodput: float
    is_calibrated: bool
    correction: Correction | None = None
    measured_ms: float | None = None

    @property
    def fits(self) -> bool:
        """Whether memory speaks against it."""
        return self.memory.refusal is None

    @property
    def examples_per_s(self) -> float:
        """While it trains."""
        return 1e3 * self.candidate.spec.global_batch_size / self.step_ms

    def epoch_s(self, examples: int) -> float:
        """An epoch of so many examples, with what machine losses cost."""
        return examples / self.examples_per_s / self.goodput

    def share(self, part: StepPart) -> float:
        """A part's share of the step."""
        return self.parts[part] / self.step_ms


def predict(workload: Workload, cluster: Cluster, candidate: Candidate, timings: Timings | None = None) -> Prediction:
    """The layout predicted, in as many parts of a step as memory asks for. ValueError where nothing says how fast the
    model computes."""
    candidate, memory = fitting(workload, cluster, candidate)
    found = situation(workload, cluster, candidate)
    layout = candidate.layout
    constants, factor = cluster.calibration.of(layout), cluster.calibration.factor(layout)
    needed = terms(found, constants)
    formula = step_ms(needed, constants)
    parts = {part: ms * factor for part, ms in parts_ms(needed, constants).items()}
    waits = max(0.0, input_ms(found) - formula * factor)
    parts[StepPart.INPUT] += waits
    step = formula * factor + waits
    fitted = cluster.calibration.is_fitted(layout)
    error = FORMULA * _WIDER[found.basis] * (1.0 if fitted else UNCALIBRATED)
    low, high, measured = step / (1 + error), step * (1 + error), None
    if timings and (took := timings.get(candidate.key)):
        measured = median(took)
        mean = sqrt(step * measured)
        parts = {part: ms * mean / step for part, ms in parts.items()}
        low, high = min(mean / (1 + NOISE), *took), max(mean * (1 + NOISE), *took)
        step = mean
    return Prediction(
        candidate=candidate,
        found=found,
        memory=memory,
        formula_ms=formula + waits,
        step_ms=step,
        low_ms=low,
        high_ms=high,
        parts=parts,
        goodput=_goodput(found, step),
        is_calibrated=fitted,
        correction=cluster.calibration.corrections.get(layout),
        measured_ms=measured,
    )


@dataclass(frozen=True)
class Trained:
    """A training that a calibration learns from: its model, its layout, and what its steps took, in ms (above 0)."""

    workload: Workload
    candidate: Candidate
    step_ms: float


def calibrated(cluster: Cluster, runs: Sequence[Trained]) -> Calibration:
    """The constants of each layout that was trained, without any correction."""
    by_layout: dict[Layout, list[tuple[Formula, float]]] = {}
    for run in runs:
        found = situation(run.workload, cluster, run.candidate)
        by_layout.setdefault(run.candidate.layout, []).append((partial(terms, found), run.step_ms))
    return Calibration({layout: fitted(layout, own) for layout, own in by_layout.items()})


def preemptible(cluster: Cluster, candidate: Candidate) -> int:
    """How many of its machines may be taken away."""
    nodes = {seat.node_id for seat in candidate.seats}
    return sum(cluster.machine(node).preemptible for node in nodes)


def _goodput(found: Situation, step: float) -> float:
    """The share of the time that is not spent on starting again and on training anew what was not yet saved.

    On average half of what lies between two checkpoints is trained anew, and half of all if there are none. Under
    parameter servers the loss of a worker stops that worker alone.
    """
    workload, cluster, candidate = found.workload, found.cluster, found.candidate
    spec = candidate.spec
    steps = spec.checkpoint_steps or workload.examples / spec.global_batch_size
    if not keeps_checkpoints(spec):
        steps = workload.examples / spec.global_batch_size * spec.epochs
    anew_s = steps * step / 1e3 / 2 if steps else TRAINED_ANEW_S
    lost = 0.0
    alone = {seat.node_id for seat in candidate.computing} if STRATEGIES[spec.strategy].coordinated else set()
    alone -= {seat.node_id for seat in candidate.seats if seat.role in (Role.CHIEF, Role.PS)}
    for node in sorted({seat.node_id for seat in candidate.seats}):
        if cluster.machine(node).preemptible:
            here = sum(seat.node_id == node for seat in candidate.computing)
            one = RESTART_S * here / len(candidate.computing)
            lost += (one if node in alone else RESTART_S + anew_s) * LOSSES_PER_DAY / _DAY_S
    return 1 / (1 + lost)
