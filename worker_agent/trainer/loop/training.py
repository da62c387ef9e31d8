"""The course of a training, the same under every strategy: epochs, calls of several steps, validation, the recipe's
Keras callbacks, checkpoints, pauses, and what is told of it all.

Called by `strategies.engine`, in every process that trains, alike: what decides (losses, metrics, the steps of a call)
is global, so all of a gang decide the same.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import keras

from worker_agent.protocol.records import FactValue, PhaseName
from worker_agent.trainer.emit import Emitter
from worker_agent.trainer.loop.evaluate import Validation
from worker_agent.trainer.loop.pace import Pace
from worker_agent.trainer.loop.rate import Rate
from worker_agent.trainer.loop.steps import Execution, Steps
from worker_agent.trainer.loop.training_report import TrainingReport
from worker_agent.trainer.model.learner import Learner
from worker_agent.trainer.recipe.data import Rows
from worker_agent.trainer.recipe.run_size import Size
from worker_agent.trainer.saving.gang_checkpoints import Checkpoints
from worker_agent.trainer.saving.state import Variables
from worker_agent.trainer.setup.memory import peak_bytes
from worker_agent.trainer.setup.stopping import StopSignal
from worker_agent.trainer.training_run import TrainingRun

_BATCH_HOOKS = ("on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end")


@dataclass(frozen=True, kw_only=True)
class Engine:
    """What a strategy brings to a training: a model with all its variables, and the ways to train and to judge it.

    `state` is what a checkpoint holds. `facts` are particular to this process. `workers` share the rows of a step.
    Calls of steps are given to `takers`, each call to one. `mean` is over what the processes of the gang say each; a
    collective.
    """

    learner: Learner
    steps: Steps
    rate: Rate
    size: Size
    state: Variables
    facts: Mapping[str, FactValue]
    validation: Callable[[Rows], Validation]
    workers: int = 1
    takers: int = 1
    mean: Callable[[float], float] = lambda number: number


class Training:
    """`validation` is None where there is nothing to judge by. Of the steps that are begun not all are done yet."""

    def __init__(
        self,
        engine: Engine,
        run: TrainingRun,
        *,
        validation: Validation | None,
        callbacks: list[Any],
        emitter: Emitter,
        stop: StopSignal,
        checkpoints: Checkpoints,
    ) -> None:
        self._engine = engine
        self._learner = engine.learner
        self._model = engine.learner.model
        self._size = engine.size
        self._validation = validation
        self._emitter = emitter
        self._report = TrainingReport(emitter, engine.size, leads=run.leads, workers=engine.workers)
        self._stop = stop
        self._checkpoints = checkpoints
        self._pace = Pace(fixed=run.spec.steps_per_execution, takers=engine.takers)
        self._is_traced = False
        self._begun = self._done = checkpoints.start.step
        self._metrics = checkpoints.metrics
        self._per_step = any(_sees_batches(each) for each in callbacks)
        if self._per_step:
            emitter.pulse.does_more()
        size = engine.size
        self._callbacks = keras.callbacks.CallbackList(
            callbacks, add_history=True, model=self._model, epochs=size.epochs, steps=size.steps_per_epoch, verbose=0
        )

    def run(self) -> Mapping[str, float]:
        """The whole training, or what a checkpoint leaves of it, or until a callback stops it; the last metrics.

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
        self._checkpoints.finish()
        return self._metrics

    def _epoch(self, epoch: int) -> None:
        began = perf_counter()
        if self._done == epoch * self._size.steps_per_epoch:  # else a checkpoint from amid the epoch brought them along
            self._model.reset_metrics()
        self._callbacks.on_epoch_begin(epoch)
        end = min((epoch + 1) * self._size.steps_per_epoch, self._size.total_steps)
        while self._begun < end and not self._model.stop_training:
            self._stop.check()
            self._begin(self._checkpoints.steps_left(self._begun, self._pace.of(end - self._begun)))
            if self._begun < end and (self._pace.pauses or self._checkpoints.is_due(self._begun, epoch_over=False)):
                self._take_in(self._engine.steps.finish())
                self._learner.average_state()
                self._save(self._learner.metrics_now(), pauses=self._pace.pauses)
        self._take_in(self._engine.steps.finish())
        logs = self._learner.metrics_now()
        self._learner.average_state()
        if self._validation is not None:
            with self._emitter.pulse.during(PhaseName.VALIDATING) as moves:
                logs |= {f"val_{name}": value for name, value in self._validation.run(moves).items()}
        seconds = perf_counter() - began
        self._metrics, rate = dict(logs), self._engine.rate.now
        self._report.epoch(number=epoch + 1, step=self._done, metrics=logs, rate=rate, seconds=seconds)
        self._emitter.facts(memory_bytes=peak_bytes())
        with self._emitter.pulse.during(PhaseName.CALLBACKS):
            self._callbacks.on_epoch_end(epoch, logs)
        last = self._model.stop_training or epoch + 1 == self._size.epochs
        pauses = self._pace.pauses and not last
        if pauses or self._checkpoints.is_due(self._done, epoch_over=True, last=last):
            self._save(logs, pauses=pauses)

    def _begin(self, count: int) -> None:
        """One more call, and what has ended meanwhile."""
        in_epoch = self._begun % self._size.steps_per_epoch
        for place in range(in_epoch, in_epoch + count) if self._per_step else ():
            self._callbacks.on_train_batch_begin(place)
        self._begun += count
        self._take_in(self._engine.steps.begin(count, self._pace.wish(pause=self._stop.saves)))

    def _take_in(self, executions: Iterator[Execution]) -> None:
        for execution in executions:
            losses, seconds = execution.losses, execution.seconds
            in_epoch = self._done % self._size.steps_per_epoch
            self._done += len(losses)
            first, self._is_traced = not self._is_traced, True
            self._pace.measured(steps=len(losses), seconds=seconds, typical=execution.is_plain and not first)
            self._pace.agree(execution.wish)
            if first:  # its time is that of tracing, and would flatten every chart of rates
                self._emitter.phase(PhaseName.TRAINING)
            elif execution.speed is not None:
                self._report.speed(self._done, execution.speed)
            if execution.scalars:
                self._emitter.log(self._done, execution.scalars)
            self._report.execution(first_step=self._done - len(losses) + 1, losses=losses, seconds=seconds)
            for place, loss in enumerate(losses, start=in_epoch) if self._per_step else ():
                self._callbacks.on_train_batch_end(place, {"loss": loss})

    def _save(self, metrics: dict[str, float], *, pauses: bool) -> None:
        """Nothing is under way, so the variables are those after exactly so many steps."""
        epoch = self._done // self._size.steps_per_epoch
        with self._emitter.pulse.during(PhaseName.SAVING):
            if pauses:
                self._checkpoints.pause(step=self._done, epoch=epoch, metrics=metrics)
            self._checkpoints.save(step=self._done, epoch=epoch, metrics=metrics)


def _sees_batches(callback: Any) -> bool:
    """True where a callback has a hook of its own that is called for every batch, in its class or put on it."""
    kinds = ((getattr(callback, name), getattr(keras.callbacks.Callback, name)) for name in _BATCH_HOOKS)
    return any(getattr(own, "__func__", None) is not stock for own, stock in kinds)
