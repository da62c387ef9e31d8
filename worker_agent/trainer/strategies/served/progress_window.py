"""What the coordinator of parameter servers says while an epoch runs: results of several workers come in bunches, one
alone tells nothing, so they are gathered for a stretch of time. Pure."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from time import perf_counter

RATE_WINDOW_S = 0.2


class Window:
    """Rates, staleness and each worker's own step time over a stretch of time. An epoch may be shorter than a window:
    then the window that `begins_epoch` tells of all of it, while a short rest of a longer one would tell nonsense."""

    def __init__(self, *, begins_epoch: bool = False, clock: Callable[[], float] = perf_counter) -> None:
        self._begins_epoch = begins_epoch
        self._clock = clock
        self._began = clock()
        self._steps: defaultdict[int, int] = defaultdict(int)
        self._worked_s: defaultdict[int, float] = defaultdict(float)
        self._staleness: list[int] = []

    def add(self, *, worker: int, seconds: float, staleness: Sequence[int]) -> bool:
        """`worker` did as many steps as `staleness` has values in `seconds`; True when the window is long enough to
        speak of."""
        self._steps[worker] += len(staleness)
        self._worked_s[worker] += seconds
        self._staleness += staleness
        return self._clock() - self._began >= RATE_WINDOW_S

    @property
    def tells_at_end(self) -> bool:
        """Whether it is worth speaking of when the epoch is over."""
        lasted_s = self._clock() - self._began
        return bool(self._steps) and (self._begins_epoch or lasted_s >= RATE_WINDOW_S / 2)

    @property
    def step_time_s(self) -> float:
        """What one step takes one worker."""
        return sum(self._worked_s.values()) / sum(self._steps.values())

    @property
    def steps_per_s(self) -> float:
        """Steps of all workers in a second."""
        return sum(self._steps.values()) / (self._clock() - self._began)

    @property
    def scalars(self) -> dict[str, float]:
        """`staleness` (mean), `staleness_max`, and `step_time_ms/worker N` of those that did something."""
        each = {
            f"step_time_ms/worker {worker}": 1000 * self._worked_s[worker] / steps
            for worker, steps in sorted(self._steps.items())
        }
        mean = sum(self._staleness) / len(self._staleness)
        return {"staleness": mean, "staleness_max": float(max(self._staleness)), **each}
