"""The course of a synchronous training: epochs, executions, validation, and the recipe's Keras callbacks.

Called by `strategies.synchronous`, in every process of the gang alike: what decides (losses, metrics, the steps of an
execution) is global, so all processes decide the same.
"""

from collections.abc import Callable
from time import perf_counter
from typing import Any

import keras

from worker_agent.trainer.emit import Emitter
from worker_agent.trainer.loop.evaluate import Evaluation
from worker_agent.trainer.loop.learner import Learner
from worker_agent.trainer.loop.pace import Pace
from worker_agent.trainer.loop.rate import Rate
from worker_agent.trainer.loop.step import Steps
from worker_agent.trainer.loop.training_report import TrainingReport
from worker_agent.trainer.recipe.run_size import Size
from worker_agent.trainer.saving.gang_checkpoints import Checkpoints
from worker_agent.trainer.setup.memory import peak_bytes
from worker_agent.trainer.setup.stopping import StopSignal

_BATCH_HOOKS = ("on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end")


class Driver:
    """`validation` None where the recipe has no validation rows."""

    def __init__(
        self,
        *,
        learner: Learner,
        steps: Steps,
        rate: Rate,
        size: Size,
        validation: Evaluation | None,
        average_state: Callable[[], None],
        callbacks: list[Any],
        emitter: Emitter,
        report: TrainingReport,
        stop: StopSignal,
        checkpoints: Checkpoints,
        steps_per_execution: int = 0,
    ) -> None:
        self._learner = learner
        self._model = learner.model
        self._steps = steps
        self._rate = rate
        self._size = size
        self._validation = validation
        self._average_state = average_state
        self._emitter = emitter
        self._report = report
        self._stop = stop
        self._checkpoints = checkpoints
        self._pace = Pace(fixed=steps_per_execution)
        self._is_traced = False
        self._done = checkpoints.start.step
        self._per_step = any(_sees_batches(each) for each in callbacks)
        self._callbacks = keras.callbacks.CallbackList(
            callbacks, add_history=True, model=learner.model, epochs=size.epochs, steps=size.steps_per_epoch, verbose=0
        )

    def train(self) -> int:
        """The whole training, or what a checkpoint leaves of it, or until a callback stops it; the steps at its end.

        Raises `Paused` in the whole gang after the same step, which is saved, once one of it was asked to pause.
        """
        self._model.stop_training = False
        if self._checkpoints.are_kept:
            self._stop.can_save()
        self._callbacks.on_train_begin()
        for epoch in range(self._done // self._size.steps_per_epoch, self._size.epochs):
            self._epoch(epoch)
            if self._model.stop_training:
                break
        self._learner.finish()
        self._callbacks.on_train_end()
        return self._done

    def _epoch(self, epoch: int) -> None:
        began = perf_counter()
        if self._done == epoch * self._size.steps_per_epoch:  # else a checkpoint from amid the epoch brought them along
            self._model.reset_metrics()
        self._callbacks.on_epoch_begin(epoch)
        end = (epoch + 1) * self._size.steps_per_epoch
        while self._done < end and not self._model.stop_training:
            self._stop.check()
            self._execution(self._checkpoints.steps_left(self._done, min(self._pace.steps, end - self._done)), epoch)
            if self._done < end and (self._pace.pauses or self._checkpoints.is_due(self._done, epoch_over=False)):
                self._average_state()
                self._save(self._learner.metrics_now(), pauses=self._pace.pauses)
        logs = self._learner.metrics_now()
        self._average_state()
        if self._validation is not None:
            with self._emitter.pulse.during("validating") as moves:
                logs |= {f"val_{name}": value for name, value in self._validation.run(moves).items()}
        seconds = perf_counter() - began
        self._report.epoch(number=epoch + 1, step=self._done, metrics=logs, rate=self._rate.now, seconds=seconds)
        self._emitter.facts(memory_bytes=peak_bytes())
        with self._emitter.pulse.during("callbacks"):
            self._callbacks.on_epoch_end(epoch, logs)
        last = self._model.stop_training or epoch + 1 == self._size.epochs
        pauses = self._pace.pauses and not last
        if pauses or self._checkpoints.is_due(self._done, epoch_over=True, last=last):
            self._save(logs, pauses=pauses)

    def _save(self, metrics: dict[str, float], *, pauses: bool) -> None:
        epoch = self._done // self._size.steps_per_epoch
        with self._emitter.pulse.during("saving"):
            if pauses:
                self._checkpoints.pause(step=self._done, epoch=epoch, metrics=metrics)
            self._checkpoints.save(step=self._done, epoch=epoch, metrics=metrics)

    def _execution(self, count: int, epoch: int) -> None:
        in_epoch = self._done - epoch * self._size.steps_per_epoch
        if self._per_step:
            for i in range(count):
                self._callbacks.on_train_batch_begin(in_epoch + i)
        began = perf_counter()
        losses, mean_wish = self._steps.run(count, self._pace.wish(pause=self._stop.saves))
        seconds = perf_counter() - began
        first, self._is_traced = not self._is_traced, True
        self._done += count
        self._pace.measured(steps=count, seconds=seconds, traced=first)
        self._pace.agree(mean_wish)
        if first:  # its time is that of tracing, and would flatten every chart of rates
            self._emitter.phase("training")
        else:
            self._report.rates(step=self._done, step_time_s=seconds / count, steps_per_s=count / seconds)
        self._report.execution(first_step=self._done - count + 1, losses=losses.tolist(), seconds=seconds)
        if self._per_step:
            for i, loss in enumerate(losses.tolist()):
                self._callbacks.on_train_batch_end(in_epoch + i, {"loss": loss})


def _sees_batches(callback: Any) -> bool:
    """True where a callback has a hook of its own that is called for every batch, in its class or put on it."""
    kinds = ((getattr(callback, name), getattr(keras.callbacks.Callback, name)) for name in _BATCH_HOOKS)
    return any(getattr(own, "__func__", None) is not stock for own, stock in kinds)
