"""What a model costs, as a short probe of the real program measured it. `costs.py` and `memory.py` read it.

A step's time is interpolated only between batches that were probed. Beyond them a line is wrong by up to 77 %, so the
answer says what it rests on (`Basis`), and the interval of a prediction grows with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from math import isfinite, log

from worker_agent.protocol.states import DeviceKind, Keras

# tf_keras took 0.8 to 1.45 times the step of Keras 3: the middle of it, where only one of them was probed.
OTHER_KERAS = 1.08
# Of a device's peak, what training reaches where nothing was probed. Between 0.2 and 0.5 in most published runs.
UTILISATION = 0.3


class Basis(StrEnum):
    """What a compute time rests on, the surest first."""

    PROBED = "probed"  # measured at this batch, or between two that were
    OTHER_CORES = "other_cores"  # measured with another number of cores
    OTHER_KERAS = "other_keras"  # measured with the other Keras
    OUTSIDE = "outside"  # beyond the batches that were probed
    FLOPS = "flops"  # computed from FLOPs alone


@dataclass(frozen=True)
class Table:
    """An embedding: its gradient is rows (IndexedSlices). `touched` rows belong to one example, at most."""

    rows: int
    row_bytes: int
    touched: float

    def __post_init__(self) -> None:
        checked("a table", {"rows": self.rows, "row_bytes": self.row_bytes}, above=True)
        checked("a table", {"touched": self.touched})

    @property
    def size_bytes(self) -> int:
        """The whole table."""
        return self.rows * self.row_bytes

    def touched_bytes(self, examples: float) -> float:
        """The rows of so many examples."""
        return min(self.size_bytes, self.touched * self.row_bytes * examples)


@dataclass(frozen=True)
class Probe:
    """The step of one process with one device, by batch: `step_ms` is the whole step, `apply_ms` the optimizer's part.

    `cores` are those that the process was pinned to; a GPU's probe may leave them out."""

    keras: Keras
    device: DeviceKind
    step_ms: Mapping[int, float]
    apply_ms: float = 0.0
    cores: int = 1

    def __post_init__(self) -> None:
        checked("a probe", {"cores": self.cores, **{f"batch {size}": size for size in self.step_ms}}, above=True)
        checked("a probe", {f"step_ms of batch {size}": ms for size, ms in self.step_ms.items()}, above=True)
        checked("a probe", {"apply_ms": self.apply_ms})


@dataclass(frozen=True)
class Compute:
    """One pass over a batch: forward and backward, and the optimizer after it."""

    gradients_ms: float
    apply_ms: float
    basis: Basis
    probed: tuple[int, int] | None = None
    """The smallest and largest batch that was probed."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A model and its data.

    `parameters` are numbers, `parameter_bytes` their bytes; `variables` counts the trainable ones. `slots` are the
    optimizer's numbers for each parameter (SGD 0, momentum 1, Adam 2). `dense_bytes` are the gradients but for those
    of `tables`. `activation_bytes` and `flops` (forward and backward) are of one example, `boundary_bytes` what one
    example sends from one pipeline stage to the next. `divisible` is the share of parameters and work in layers that
    tensor parallel can divide. `largest_bytes` is the largest variable. `input_ms` is the time
    in which one process prepares one example, `host_ms` what Python takes of a step. `examples` are those of an epoch,
    0 if unknown; with `reads_apart` a worker reads only those that it computes. `noise_scale` is the gradient noise
    scale in examples, if it was measured.
    """

    parameters: int
    parameter_bytes: float
    variables: int
    dense_bytes: float
    tables: tuple[Table, ...] = ()
    slots: float = 2.0
    activation_bytes: float = 0.0
    boundary_bytes: float = 0.0
    largest_bytes: float = 0.0
    flops: float = 0.0
    divisible: float = 1.0
    probes: tuple[Probe, ...] = field(default=())
    input_ms: float = 0.0
    reads_apart: bool = False
    host_ms: float = 0.0
    examples: int = 0
    noise_scale: float | None = None

    def __post_init__(self) -> None:
        numbers = {name: value for name, value in vars(self).items() if isinstance(value, int | float)}
        checked("a workload", numbers)

    @property
    def gradient_bytes(self) -> float:
        """All gradients, the tables' made dense."""
        return self.dense_bytes + sum(table.size_bytes for table in self.tables)


def compute(
    workload: Workload,
    batch: float,
    *,
    keras: Keras,
    device: DeviceKind,
    cores: float,
    speed: float = 1.0,
    flops_per_s: float = 0.0,
) -> Compute:
    """One pass over `batch` examples on a device that is `speed` times the probed one, with `cores` of its own.

    `flops_per_s` is of the device, or of one core: read only where nothing was probed on that kind of device.
    ValueError if neither a probe nor FLOPs say anything.
    """
    kin = [probe for probe in workload.probes if probe.device is device and probe.step_ms]
    if kin:
        return _from_probe(kin, batch, keras, device, cores, speed)
    if workload.flops <= 0 or flops_per_s <= 0:
        raise ValueError(f"nothing says how fast the model computes on a {device.upper()}: probe it, or give its FLOPs")
    rate = flops_per_s * UTILISATION * (cores if device is DeviceKind.CPU else 1)
    return Compute(1e3 * workload.flops * batch / rate, 0.0, Basis.FLOPS)


def _from_probe(
    kin: list[Probe], batch: float, keras: Keras, device: DeviceKind, cores: float, speed: float
) -> Compute:
    best = min(kin, key=lambda each: (each.keras is not keras, abs(log(max(1, each.cores) / cores)), -each.cores))
    step, inside = _at(best.step_ms, batch)
    apply = min(best.apply_ms, step)
    factor, basis = 1.0, Basis.PROBED if inside else Basis.OUTSIDE
    if best.keras is not keras:
        factor, basis = OTHER_KERAS if keras is Keras.TF_KERAS else 1 / OTHER_KERAS, max_basis(basis, Basis.OTHER_KERAS)
    if device is DeviceKind.CPU and best.cores != cores:
        # More cores are not known to help: small models are even slower with two threads than with one.
        factor, basis = factor * max(1.0, best.cores / cores), max_basis(basis, Basis.OTHER_CORES)
    factor /= speed
    known = (min(best.step_ms), max(best.step_ms))
    return Compute((step - apply) * factor, apply * factor, basis, known)


def checked(what: str, numbers: Mapping[str, float], *, above: bool = False) -> None:
    """ValueError that names the first number that is not finite, or below 0 (`above`: or 0). Probes run programs that
    nobody vouches for."""
    for name, value in numbers.items():
        if not isfinite(value) or value < 0 or (above and value == 0):
            raise ValueError(f"{name} of {what} is {value}: give a finite number {'above 0' if above else 'from 0 on'}")


def max_basis(*several: Basis) -> Basis:
    """The least sure one."""
    return max(several, key=list(Basis).index)


def _at(known: Mapping[int, float], batch: float) -> tuple[float, bool]:
    """The step at a batch, and whether it lies inside what was probed.

    Between two probes a line. Beyond them the line goes on, but a smaller batch is never slower than the smallest
    probe, nor quicker for each example; a larger one is never quicker than the largest probe."""
    points = sorted(known.items())
    for (left, low), (right, high) in pairwise(points):
        if left <= batch <= right:
            return low + (high - low) * (batch - left) / (right - left), True
    first, last = points[0], points[-1]
    if batch < first[0]:
        line = _line(points[:2], batch)
        return min(first[1], max(line, first[1] * batch / first[0])), False
    return max(last[1], _line(points[-2:], batch)), batch == last[0]


def _line(points: list[tuple[int, float]], batch: float) -> float:
    (x0, y0), (x1, y1) = points if len(points) == 2 else [(0, 0.0), points[0]]
    return y0 + (y1 - y0) * (batch - x0) / (x1 - x0)
