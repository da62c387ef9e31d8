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
    """Begins with the first call while none is under way, and goes on until none is again.

    It tells of the time since it told last, once that is long enough. At its end it tells of that time too, together
    with what it told last where that alone would be too short: else the rest of an epoch would tell nonsense.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._began = self._before = clock()
        self._calls: list[tuple[float, Call]] = []

    def add(self, call: Call) -> bool:
        """True when it is time to tell."""
        self._calls.append((self._clock(), call))
        return self._clock() - self._began >= WINDOW_S

    def tell(self) -> tuple[Speed, dict[str, float]]:
        """The speed, and `staleness` (mean), `staleness_max`, `step_time_ms/worker N` of those that did something."""
        now = self._clock()
        first = self._began if now - self._began >= WINDOW_S / 2 else self._before
        calls = [call for at, call in self._calls if at > first]
        self._calls = [(at, call) for at, call in self._calls if at > self._began]
        self._before, self._began = self._began, now
        steps: defaultdict[int, int] = defaultdict(int)
        worked_s: defaultdict[int, float] = defaultdict(float)
        for call in calls:
            steps[call.worker] += len(call.staleness)
            worked_s[call.worker] += call.seconds
        staleness = [each for call in calls for each in call.staleness]
        each_worker = {f"step_time_ms/worker {each}": 1000 * worked_s[each] / steps[each] for each in sorted(steps)}
        speed = Speed(step_time_s=sum(worked_s.values()) / len(staleness), steps_per_s=len(staleness) / (now - first))
        mean = sum(staleness) / len(staleness)
        return speed, {"staleness": mean, "staleness_max": float(max(staleness)), **each_worker}
