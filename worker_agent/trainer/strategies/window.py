"""What the coordinator of parameter servers says while an epoch runs: results of several workers come in bunches, one
alone tells nothing, so they are gathered for a stretch of time. Pure but for the clock."""

from collections import defaultdict
from collections.abc import Sequence
from time import perf_counter

RATE_WINDOW_S = 0.2


class Window:
    """Rates, staleness and each worker's own step time over a stretch of time."""

    def __init__(self) -> None:
        self._began = perf_counter()
        self._steps: defaultdict[int, int] = defaultdict(int)
        self._worked_s: defaultdict[int, float] = defaultdict(float)
        self._staleness: list[int] = []

    def add(self, *, worker: int, seconds: float, staleness: Sequence[int]) -> bool:
        """`worker` did as many steps as `staleness` has values in `seconds`; True when the window is long enough to
        speak of."""
        self._steps[worker] += len(staleness)
        self._worked_s[worker] += seconds
        self._staleness += staleness
        return perf_counter() - self._began >= RATE_WINDOW_S

    @property
    def is_empty(self) -> bool:
        """True while nothing was added."""
        return not self._steps

    @property
    def step_time_s(self) -> float:
        """What one step takes one worker."""
        return sum(self._worked_s.values()) / sum(self._steps.values())

    @property
    def steps_per_s(self) -> float:
        """Steps of all workers in a second."""
        return sum(self._steps.values()) / (perf_counter() - self._began)

    @property
    def scalars(self) -> dict[str, float]:
        """`staleness` (mean), `staleness_max`, and `step_time_ms/worker N` of those that did something."""
        each = {
            f"step_time_ms/worker {worker}": 1000 * self._worked_s[worker] / steps
            for worker, steps in sorted(self._steps.items())
        }
        mean = sum(self._staleness) / len(self._staleness)
        return {"staleness": mean, "staleness_max": float(max(self._staleness)), **each}
