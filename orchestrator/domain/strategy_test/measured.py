"""What one run of a candidate measured, and what several runs of it say together. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np
from numpy.typing import NDArray

# The first part of a run is left out: tracing, filling of buffers, the first slow calls.
WARM_UP = 0.2
# Less than this behind it says nothing.
LEAST_STEPS, LEAST_S = 20, 1.0
# The same job run again differs by so much (docs/choosing.md), so one run alone is known no better.
RERUN = 0.09


@dataclass(frozen=True)
class Measured:
    """One run. `examples_per_s` is steps over wall-clock behind the warm-up, by the batch; `epoch_s` what an epoch
    takes at that rate; `target_s` when the target was reached, from the first step on (None: never); `final` the last
    metrics; `parts` of a step in ms; `seconds` from launch to end, on `devices`; `memory_bytes` the most of a process.
    """

    examples_per_s: float
    step_time_ms: float
    devices: int
    seconds: float
    epoch_s: float | None = None
    target_s: float | None = None
    final: Mapping[str, float] = field(default_factory=dict)
    parts: Mapping[str, float] = field(default_factory=dict)
    staleness: float | None = None
    memory_bytes: float | None = None
    restarts: int = 0

    @property
    def device_hours(self) -> float:
        """Devices times the hours that they were held."""
        return self.devices * self.seconds / 3600


@dataclass(frozen=True)
class Spread:
    """A figure of several runs: their median, the lowest, the highest; of one run, what it would differ by."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread | None":
        """None of no value."""
        if not values:
            return None
        middle = median(values)
        if len(values) == 1:
            return cls(middle, middle * (1 - RERUN), middle * (1 + RERUN))
        return cls(middle, min(values), max(values))

    def overlaps(self, other: "Spread") -> bool:
        """Whether what was measured of the two leaves open which is larger."""
        return self.low <= other.high and other.low <= self.high


def rate_of(steps: NDArray[np.int64], times: NDArray[np.float64]) -> float | None:
    """Steps a second behind the warm-up, by the times (s) at which `steps` were done; None of too few or too short."""
    first = steps[0] + WARM_UP * (steps[-1] - steps[0]) if len(steps) else 0.0
    kept = steps >= first
    if not kept.any():
        return None
    seconds, done = times[kept][-1] - times[kept][0], steps[kept][-1] - steps[kept][0]
    return float(done / seconds) if done >= LEAST_STEPS and seconds >= LEAST_S else None


def reached_s(
    steps: NDArray[np.int64], times: NDArray[np.float64], values: NDArray[np.float64], *, target: float, falls: bool
) -> float | None:
    """The time (s, as `times`) at which a metric first was as good as the target; None where it never was."""
    good = values <= target if falls else values >= target
    return float(times[np.argmax(good)]) if good.any() else None
