"""What a training says while it runs, the same words under every strategy: points, progress, epoch summaries."""

import math
from collections.abc import Mapping, Sequence
from time import time

from worker_agent.protocol.records import Points, Progress, Summary
from worker_agent.protocol.states import Cause
from worker_agent.trainer.emit import Emitter, say
from worker_agent.trainer.loop.steps import Speed
from worker_agent.trainer.outcome import TrainingFailed
from worker_agent.trainer.recipe.run_size import Size


class TrainingReport:
    """`leads` is true for the one process whose losses, metrics and epoch lines are the job's."""

    def __init__(self, emitter: Emitter, size: Size, *, leads: bool, workers: int) -> None:
        self._emitter = emitter
        self._size = size
        self._leads = leads
        self._workers = workers

    def execution(self, *, first_step: int, losses: Sequence[float], seconds: float) -> None:
        """Steps were done that took `seconds` together; the first of them is number `first_step` (from 1).

        Raises `TrainingFailed` when a loss is not finite, after it has been written down.
        """
        ended_at = time()
        count = len(losses)
        last_step = first_step + count - 1
        if self._leads:
            self._emitter.record(
                Points(
                    names=["loss"],
                    steps=list(range(first_step, last_step + 1)),
                    times=[ended_at - seconds * (count - 1 - i) / count for i in range(count)],
                    values=[[float(loss) for loss in losses]],
                )
            )
        epoch = min((last_step - 1) // self._size.steps_per_epoch + 1, self._size.epochs)
        self._emitter.record(
            Progress(
                at=ended_at, step=last_step, total_steps=self._size.total_steps, epoch=epoch, epochs=self._size.epochs
            )
        )
        for i, loss in enumerate(losses):
            if not math.isfinite(loss):
                raise not_finite(float(loss), step=first_step + i, epoch=epoch)

    def speed(self, step: int, speed: Speed) -> None:
        """How fast this process is at `step`."""
        self._emitter.log(
            step,
            {
                "step_time_ms": speed.step_time_s * 1000,
                "examples_per_s": speed.steps_per_s * self._size.batch / self._workers,
                "steps_per_s": speed.steps_per_s,
            },
        )

    def epoch(self, *, number: int, step: int, metrics: Mapping[str, float], rate: float, seconds: float) -> None:
        """Epoch `number` (from 1) is over after `step` steps."""
        if not self._leads:
            return
        # The loss of every step stands in its series already; the epoch's mean goes to the summary alone.
        scalars = {name: value for name, value in metrics.items() if name != "loss"}
        self._emitter.log(step, scalars | {"learning_rate": rate})
        self._emitter.record(Summary(at=time(), epoch=number, metrics=dict(metrics)))
        values = "  ".join(f"{name} {value:.4f}" for name, value in metrics.items())
        say(f"epoch {number}/{self._size.epochs}  {values}  ({seconds:.1f} s)")


def not_finite(loss: float, *, step: int, epoch: int) -> TrainingFailed:
    """The failure of a loss that left the numbers."""
    word = "NaN" if math.isnan(loss) else "infinite"
    return TrainingFailed(f"The loss became {word} at step {step} (epoch {epoch}).", Cause.LOSS_NOT_FINITE)
