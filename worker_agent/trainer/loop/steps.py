"""How a strategy takes steps, as the course of a training sees it: calls of several steps are begun, and each leaves an
`Execution`, in the order of their beginning."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NamedTuple


class Speed(NamedTuple):
    """What one step takes whoever computes it, and how many a second this process has a part in."""

    step_time_s: float
    steps_per_s: float


@dataclass(frozen=True, kw_only=True)
class Execution:
    """What one call leaves: the loss of each step, the seconds that it took, the gang's mean wish for the calls to come
    (`Pace`). Its `speed` is None where one call alone tells nothing; `scalars` is what else there is to log. It
    `is_plain` unless something took part of its seconds that is not in every call."""

    losses: list[float]
    seconds: float
    wish: float
    is_plain: bool = True
    speed: Speed | None = None
    scalars: Mapping[str, float] = field(default_factory=dict)


class Steps(ABC):
    """`count` is the TensorFlow variable that counts the steps, beside the learner's state in every checkpoint."""

    count: Any

    @abstractmethod
    def begin(self, steps: int, wish: int) -> Iterator[Execution]:
        """Begin a call of `steps`; what has ended since the last one was begun. `wish` is this process's own."""

    def finish(self) -> Iterator[Execution]:
        """What is still under way, as it ends."""
        return iter(())


class BlockingSteps(Steps):
    """Each call has ended before the next one is begun."""

    @abstractmethod
    def run(self, steps: int, wish: int) -> tuple[Any, float]:
        """`steps` optimizer steps: their global losses (array), and the gang's mean wish."""

    def begin(self, steps: int, wish: int) -> Iterator[Execution]:
        began = perf_counter()
        losses, mean_wish = self.run(steps, wish)
        seconds = perf_counter() - began
        speed = Speed(step_time_s=seconds / steps, steps_per_s=steps / seconds)
        yield Execution(losses=losses.tolist(), seconds=seconds, wish=mean_wish, speed=speed)
