"""The chief of a parameter-server gang, the course of its training: keeps the workers busy, saves, validates, exports.

What runs on the workers is in `worker_step`, what they read in `dealt`, the model in `served_model`.
"""

from collections.abc import Callable
from itertools import pairwise
from time import perf_counter
from typing import Any

import tensorflow as tf

from worker_agent.trainer.emit import say
from worker_agent.trainer.loop.pace import Pace
from worker_agent.trainer.loop.training_report import TrainingReport
from worker_agent.trainer.recipe import data, recipe_file
from worker_agent.trainer.recipe.run_size import size_of
from worker_agent.trainer.saving import export
from worker_agent.trainer.saving.gang_checkpoints import Checkpoints
from worker_agent.trainer.setup.memory import peak_bytes
from worker_agent.trainer.strategies.interface import Task
from worker_agent.trainer.strategies.legacy_model import metrics_now
from worker_agent.trainer.strategies.served import batch_dealing
from worker_agent.trainer.strategies.served.in_flight import Pump
from worker_agent.trainer.strategies.served.progress_window import Window
from worker_agent.trainer.strategies.served.served_model import ServedModel
from worker_agent.trainer.strategies.served.worker_execution import Execution
from worker_agent.trainer.strategies.served.worker_step import Told, WorkerStep

IN_FLIGHT_PER_WORKER = 2
VALIDATED_AGAIN = 4


class Coordinator:
    """One training. The number of updates is exactly the number of steps scheduled, epoch by epoch."""

    def __init__(self, task: Task, strategy: tf.distribute.ParameterServerStrategy) -> None:
        self._task = task
        self._run = run = task.run
        task.emitter.phase("building")
        self._recipe = recipe_file.load(run.entry, run.code, run.spec.params)
        rows = data.Rows(self._recipe, "train").whole
        self._size = size_of(
            rows=data.count_rows(rows),
            global_batch=run.spec.global_batch_size,
            replicas=strategy.num_replicas_in_sync,
            epochs=run.spec.epochs,
        )
        self._served = ServedModel(run, strategy, self._recipe, rows, self._size)
        self._checkpoints = Checkpoints(run, task.emitter)
        self._served.resume(self._checkpoints, self._size)
        self._done = self._scheduled = self._checkpoints.start.step
        self._validation_batches = self._count_validation_batches()
        self._steps = WorkerStep(strategy, self._served, rows=self._size.batch)
        self._place = batch_dealing.Place(strategy, self._done)
        self._workers = tf.distribute.coordinator.ClusterCoordinator(strategy)
        self._input = self._read_by_workers(
            lambda: batch_dealing.training_batches(
                self._recipe, self._size, seed=run.spec.seed, start_step=self._place.read()
            )
        )
        self._report = TrainingReport(task.emitter, self._size, leads=True, workers=1)
        self._report.last_metrics = self._checkpoints.metrics
        self._callbacks = tf.keras.callbacks.CallbackList(
            self._recipe.callbacks(),
            add_history=True,
            model=self._served.model,
            epochs=self._size.epochs,
            steps=self._size.steps_per_epoch,
            verbose=0,
        )
        self._pace = Pace(fixed=run.spec.steps_per_execution)
        self._is_traced = False
        self._epoch_losses: list[float] = []
        self._window = Window()
        self._steps_of_workers = [0] * run.workers
        self._tell(
            replicas_in_sync=strategy.num_replicas_in_sync,
            precision=run.spec.precision,
            sharding=batch_dealing.DIVISION,
            **self._served.facts(),
        )

    def train(self) -> None:
        """Every epoch: its steps, then validation by the workers; at the end the export."""
        pump = Pump(self._schedule, self._deliver, in_flight=IN_FLIGHT_PER_WORKER * self._run.workers)
        self._served.model.stop_training = False
        if self._checkpoints.are_kept:
            self._task.stop.can_save()
        self._callbacks.on_train_begin()
        for epoch in range(self._done // self._size.steps_per_epoch, self._size.epochs):
            self._epoch(epoch, pump)
            if self._served.model.stop_training:
                break
        self._callbacks.on_train_end()
        pump.close()
        self._checkpoints.finish()
        self._task.emitter.phase("saving")
        model, applied = self._served.to_export(), int(self._served.applied.numpy())
        export.write(self._run, self._recipe, model, metrics=self._report.last_metrics, steps=applied)

    def _epoch(self, epoch: int, pump: Pump) -> None:
        began = perf_counter()
        self._epoch_losses, self._window = [], Window(begins_epoch=True)
        if self._done == epoch * self._size.steps_per_epoch:  # else a checkpoint from amid the epoch brought them along
            self._served.model.reset_metrics()
        self._callbacks.on_epoch_begin(epoch)
        end = (epoch + 1) * self._size.steps_per_epoch
        while self._scheduled < end and not self._served.model.stop_training:
            self._task.stop.check()
            pump.put(self._checkpoints.steps_left(self._scheduled, min(self._pace.steps, end - self._scheduled)))
            pauses = self._task.stop.saves
            if self._scheduled < end and (pauses or self._checkpoints.is_due(self._scheduled, epoch_over=False)):
                pump.drain()
                self._save(metrics_now(self._served.model), pauses=pauses)
        pump.drain()
        if self._window.tells_at_end:
            self._tell_window({})
        mean_loss = sum(self._epoch_losses) / len(self._epoch_losses)
        logs = metrics_now(self._served.model) | {"loss": mean_loss}
        if self._validation_batches:
            with self._task.emitter.pulse.during("validating"):
                logs |= {f"val_{name}": value for name, value in self._validate().items()}
        seconds = perf_counter() - began
        self._report.epoch(number=epoch + 1, step=self._done, metrics=logs, rate=self._served.rate.now, seconds=seconds)
        self._tell(memory_bytes=peak_bytes(), steps_of_workers=list(self._steps_of_workers))
        with self._task.emitter.pulse.during("callbacks"):
            self._callbacks.on_epoch_end(epoch, logs)
        last = self._served.model.stop_training or end == self._size.total_steps
        pauses = self._task.stop.saves and not last
        if pauses or self._checkpoints.is_due(self._done, epoch_over=True, last=last):
            self._save(logs, pauses=pauses)

    def _schedule(self, steps: int) -> Any:
        first, self._scheduled = self._scheduled, self._scheduled + steps
        given = (self._input, tf.constant(first, tf.int64), tf.constant(steps))
        return Execution(lambda: self._workers.schedule(self._steps.train, args=given))

    def _deliver(self, told: Told) -> None:
        """In the pump's thread, in the order of scheduling: what one execution left."""
        losses, seconds, worker = told.losses.tolist(), float(told.seconds), int(told.worker)
        count = len(losses)
        first, self._is_traced = not self._is_traced, True
        self._done += count
        self._place.moved(self._done)
        self._steps_of_workers[worker] += count
        self._pace.measured(steps=count, seconds=seconds, traced=first)
        self._pace.agree(self._pace.wish())
        if first:  # its time is that of tracing
            self._task.emitter.phase("training")
            self._window = Window(begins_epoch=True)
        self._epoch_losses += losses
        if not first and self._window.add(worker=worker, seconds=seconds, staleness=told.staleness.tolist()):
            self._tell_window(told.metrics)
        self._report.execution(first_step=self._done - count + 1, losses=losses, seconds=seconds)
        for place, loss in enumerate(losses, start=(self._done - count) % self._size.steps_per_epoch):
            self._callbacks.on_train_batch_begin(place)  # tf_keras' list needs it before each end
            self._callbacks.on_train_batch_end(place, {"loss": loss})

    def _tell_window(self, metrics: dict[str, Any]) -> None:
        """Rates, and the metrics of the epoch so far; those of a whole epoch are told at its end."""
        window, self._window = self._window, Window()
        self._report.rates(step=self._done, step_time_s=window.step_time_s, steps_per_s=window.steps_per_s)
        self._task.emitter.log(self._done, **window.scalars)
        if self._done % self._size.steps_per_epoch:
            so_far = {name: float(value) for name, value in metrics.items() if name != "loss"}
            self._task.emitter.log(self._done, **so_far)

    def _validate(self) -> dict[str, float]:
        """Loss and metrics of the validation rows, over all workers."""
        for last in (*[False] * VALIDATED_AGAIN, True):
            try:
                if self._judge() == self._validation_batches:
                    break
            except tf.errors.OutOfRangeError:
                if last:
                    raise
            say("A worker went away while it validated.")
        return metrics_now(self._served.model)

    def _judge(self) -> int:
        """How many batches went into the metrics: too many where a lost worker's part went to another one; out of range
        where that one had passed it."""
        self._served.model.reset_metrics()
        self._steps.judged.assign(0)
        batches = self._read_by_workers(lambda: batch_dealing.validation_batches(self._recipe, batch=self._size.batch))
        pieces = min(self._validation_batches, IN_FLIGHT_PER_WORKER * self._run.workers)
        bounds = [self._validation_batches * piece // pieces for piece in range(pieces + 1)]
        for first, end in pairwise(bounds):
            numbers = (tf.constant(first, tf.int64), tf.constant(end, tf.int64))
            self._workers.schedule(self._steps.evaluate, args=(batches, *numbers))
        self._workers.join()
        return int(self._steps.judged.numpy())

    def _count_validation_batches(self) -> int:
        """0 where there is nothing to validate with, or an evaluator does it."""
        rows = data.Rows(self._recipe, "validation")
        if self._run.spec.validation == "evaluator" or not rows.exist:
            return 0
        return -(-data.count_rows(rows.whole) // self._size.batch)

    def _save(self, metrics: dict[str, float], *, pauses: bool) -> None:
        """Nothing is in flight, so the variables are those after exactly `_done` updates."""
        epoch = self._done // self._size.steps_per_epoch
        with self._task.emitter.pulse.during("saving"):
            if pauses:
                self._checkpoints.pause(step=self._done, epoch=epoch, metrics=metrics)
            self._checkpoints.save(step=self._done, epoch=epoch, metrics=metrics)

    def _read_by_workers(self, batches: Callable[[], tf.data.Dataset]) -> Any:
        # The recipe is plain Python to us: AutoGraph would rewrite whatever libraries it calls.
        plain = tf.autograph.experimental.do_not_convert(batches)
        return iter(self._workers.create_per_worker_dataset(plain))

    def _tell(self, **facts: Any) -> None:
        self._task.emitter.facts(**facts)
