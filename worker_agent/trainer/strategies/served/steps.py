"""The steps of a parameter-server training, as its coordinator has them taken: keeps the workers busy, and has them
judge the model. What runs on them is in `worker_step`, what they read in `numbered_batches`."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from time import monotonic
from typing import Any

import tensorflow as tf

from worker_agent.trainer.emit import Emitter, say
from worker_agent.trainer.loop.steps import Execution, Speed, Steps
from worker_agent.trainer.strategies.served.numbered_batches import counter
from worker_agent.trainer.strategies.served.speed_window import Call, SpeedWindow
from worker_agent.trainer.strategies.served.worker_call import CallsUnderWay
from worker_agent.trainer.strategies.served.worker_step import WorkerStep

UNDER_WAY_PER_WORKER = 2
MOVED_EVERY_S = 5.0
VALIDATIONS = 5


class ServedSteps(Steps):
    """The number of updates is exactly the number of steps begun, whichever worker makes them. `batches` gives each
    worker its numbered batches, from the step on that it is given."""

    def __init__(
        self,
        *,
        coordinator: Any,
        step: WorkerStep,
        batches: Callable[[tf.Tensor], tf.data.Dataset],
        workers: int,
        start_step: int,
        emitter: Emitter,
    ) -> None:
        self.count = step.applied
        self._coordinator = coordinator
        self._step = step
        self._emitter = emitter
        self._begun = self._done = start_step
        self._first, self._moved_at = counter(coordinator.strategy, start_step), monotonic()
        self._batches = _per_worker(coordinator, lambda: batches(self._first.read_value()))
        self._calls = CallsUnderWay(UNDER_WAY_PER_WORKER * workers)
        self._window = SpeedWindow()
        self._steps_of_workers = [0] * workers
        self._is_traced = False
        self._wish = 0

    def begin(self, steps: int, wish: int) -> Iterator[Execution]:
        """The coordinator alone wishes; it says so with what ends from now on."""
        self._wish = wish
        self._window.go_on()
        given = (self._batches, tf.constant(self._begun, tf.int64), tf.constant(steps))
        self._begun += steps
        for result in self._calls.add(lambda: self._coordinator.schedule(self._step.train, args=given)):
            yield self._ended(result)

    def finish(self) -> Iterator[Execution]:
        """Metrics lie on the servers once, for all workers: a step of the next epoch that ended before the last one of
        this would count in its metrics, so none may be begun. The pause is 3 % of epochs of 32 steps of 10 ms."""
        for result in self._calls.rest():
            if not self._calls:
                self._window.rest()
            yield self._ended(result, is_last=not self._calls)
        self._emitter.facts(steps_of_workers=list(self._steps_of_workers))

    def _ended(self, result: Any, *, is_last: bool = False) -> Execution:
        """The speed is told once there is enough to tell, with the metrics of the epoch so far."""
        losses, seconds, worker = result.losses.tolist(), float(result.seconds), int(result.worker)
        self._done += len(losses)
        if monotonic() - self._moved_at >= MOVED_EVERY_S:  # so that a worker that comes back has little to pass over
            self._first.assign(self._done)
            self._moved_at = monotonic()
        self._steps_of_workers[worker] += len(losses)
        speed: Speed | None = None
        scalars: dict[str, float] = {}
        if not self._is_traced:  # its time is that of tracing
            self._is_traced, self._window = True, SpeedWindow()
            if not is_last:
                self._window.go_on()
        else:
            self._window.add(Call(worker, seconds, result.staleness.tolist()))
        if self._window.is_full():
            speed, scalars = self._window.tell()
            if not is_last:  # else the training itself tells those of the whole epoch
                scalars |= {name: float(value) for name, value in result.metrics.items() if name != "loss"}
        return Execution(losses=losses, seconds=seconds, wish=self._wish, speed=speed, scalars=scalars)


class ServedEvaluation:
    """Validation by the workers; `batches` gives each of them all `count` batches again and again, by number from the
    one on that it is given. Each worker has one iterator for the whole training: TensorFlow may stand still when one
    of a Python generator is destroyed while calls are under way."""

    def __init__(
        self,
        *,
        coordinator: Any,
        step: WorkerStep,
        batches: Callable[[tf.Tensor], tf.data.Dataset],
        count: int,
        workers: int,
    ) -> None:
        self._coordinator = coordinator
        self._step = step
        self._first = counter(coordinator.strategy)
        self._batches = _per_worker(coordinator, lambda: batches(self._first.read_value()))
        self._begun = 0
        self._count = count
        pieces = min(count, UNDER_WAY_PER_WORKER * workers)
        self._bounds = [count * piece // pieces for piece in range(pieces + 1)]

    def run(self, moves: Callable[[], None]) -> dict[str, float]:
        """Loss and metrics of the validation rows, over all workers."""
        for _ in range(VALIDATIONS):
            if self._judge() == self._count:
                break
            say("A worker went away while it validated.")
            moves()
        return self._step.learner.metrics_now()

    def _judge(self) -> int:
        """How many batches went into the metrics: too many where a lost worker's part went to another one."""
        self._step.learner.model.reset_metrics()
        self._step.judged.assign(0)
        self._first.assign(self._begun)
        for first, end in pairwise(self._bounds):
            numbers = (tf.constant(self._begun + each, tf.int64) for each in (first, end))
            self._coordinator.schedule(self._step.evaluate, args=(self._batches, *numbers))
        self._begun += self._count
        self._coordinator.join()
        return int(self._step.judged.numpy())


def _per_worker(coordinator: Any, batches: Callable[[], tf.data.Dataset]) -> Any:
    """An iterator for each. To us the recipe is plain Python: AutoGraph would rewrite whatever libraries it calls."""
    return iter(coordinator.create_per_worker_dataset(tf.autograph.experimental.do_not_convert(batches)))
