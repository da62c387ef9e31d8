"""How fast the workers of a parameter-server gang are together: steps over wall-clock. Results of several workers come
in bunches, one alone tells nothing, so they are gathered for a stretch of time. Pure."""

from collections import defaultdict
from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple

from worker_agent.trainer.loop.steps import Speed

WINDOW_S = 1.0


class Call(NamedTuple):
    """One that has ended: its worker, the seconds it took there, and the staleness of each of its steps."""

    worker: int
    seconds: float
    staleness: list[int]


class SpeedWindow:
    """Its clock runs from `go_on` to `rest`, while calls are under way: what lies between two epochs is no step's time.

    Short epochs share a window, since what one of them alone tells is noise.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._calls: list[Call] = []
        self._spent_s = 0.0
        self._since: float | None = None
        self._has_told = False

    def go_on(self) -> None:
        """Calls are under way, maybe for long."""
        if self._since is None:
            self._since = self._clock()

    def rest(self) -> None:
        """None is any more."""
        self._spent_s, self._since = self._so_far_s, None

    def add(self, call: Call) -> None:
        """It has ended."""
        self._calls.append(call)

    def is_full(self) -> bool:
        """Whether it is time to tell. At rest half a window is enough, and for the first time anything."""
        resting = self._since is None
        least_s = WINDOW_S if not resting else WINDOW_S / 2 if self._has_told else 0.0
        return bool(self._calls) and self._so_far_s >= least_s

    @property
    def _so_far_s(self) -> float:
        return self._spent_s + (self._clock() - self._since if self._since is not None else 0.0)

    def tell(self) -> tuple[Speed, dict[str, float]]:
        """The speed, and `staleness` (mean), `staleness_max`, `step_time_ms/worker N` of those that did something."""
        calls, seconds = self._calls, self._so_far_s
        self._calls, self._spent_s, self._has_told = [], 0.0, True
        self._since = self._clock() if self._since is not None else None
        steps: defaultdict[int, int] = defaultdict(int)
        worked_s: defaultdict[int, float] = defaultdict(float)
        for call in calls:
            steps[call.worker] += len(call.staleness)
            worked_s[call.worker] += call.seconds
        staleness = [each for call in calls for each in call.staleness]
        each_worker = {f"step_time_ms/worker {each}": 1000 * worked_s[each] / steps[each] for each in sorted(steps)}
        speed = Speed(step_time_s=sum(worked_s.values()) / len(staleness), steps_per_s=len(staleness) / seconds)
        mean = sum(staleness) / len(staleness)
        return speed, {"staleness": mean, "staleness_max": float(max(staleness)), **each_worker}
