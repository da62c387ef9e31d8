"""The training step: many steps per call, one packed all-reduce each, and the true global loss of every one.

What it guarantees, and Keras' own `fit` does not: the global batch is the unit of truth (unequal replica batches are
weighted by rows), and gradient clipping, loss scaling and accumulation see the all-reduced gradient, so one, two or
three workers take the same step. A loss that Keras normalises by masked positions is normalised in each replica.
"""

import os
from collections.abc import Iterator
from functools import partial
from time import perf_counter
from typing import Any

import keras
import tensorflow as tf

from worker_agent.trainer.loop.rate import Rate
from worker_agent.trainer.loop.stamps import ReplicaStamps, moment, row_of
from worker_agent.trainer.loop.step_parts import OFF, Due, Moments, parts_of
from worker_agent.trainer.loop.steps import BlockingSteps, Execution
from worker_agent.trainer.model.compiled_model import has_own_step
from worker_agent.trainer.model.learner import ReplicaLearner
from worker_agent.trainer.model.reduce import added, all_reduce, divided
from worker_agent.trainer.outcome import TrainingFailed


class ReplicaSteps(BlockingSteps):
    """Runs calls of k steps. The learner's variables exist already.

    One step sums the gradients of `parts` batches of `train_data`, which make the `global_batch` together. `jit` has
    XLA compile forward and backward pass; it cannot compile what the replicas exchange.
    """

    def __init__(
        self,
        *,
        learner: ReplicaLearner,
        rate: Rate,
        train_data: Any,
        global_batch: int,
        parts: int = 1,
        jit: bool = False,
    ) -> None:
        self._strategy = learner.strategy
        self._learner = learner
        self._rate = rate
        self._parts = parts
        self._replicas = learner.replicas
        self._part_rows = global_batch / self._replicas / parts
        self.element_spec = train_data.element_spec
        self._iterator = iter(train_data)
        with self._strategy.scope():
            self.count = tf.Variable(
                0, dtype=tf.int64, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA
            )
        self._replica_step = self._own_step if learner.has_own_step else self._stock_step
        check_own_step(learner.model, parts=parts, jit=jit)
        self._part = self.gradients
        if jit:
            check_jit(learner.model, replicas=self._replicas)
            self._part = tf.function(self.gradients, jit_compile=True, reduce_retracing=True, autograph=False)
        self._plain, self._stamped = (
            tf.function(partial(self._execution, stamped=each), reduce_retracing=True, autograph=False)
            for each in (False, True)
        )
        self._due = Due(never=OFF in os.environ or isinstance(self._strategy, tf.distribute.TPUStrategy))
        self._is_asked = self._is_traced = False

    def begin(self, steps: int, wish: int) -> Iterator[Execution]:
        """Now and then the gang takes a call whose steps are stamped, all processes the same one."""
        if not self._is_asked:
            yield from super().begin(steps, wish)
            return
        measured, self._is_traced = self._is_traced, True
        if measured:  # else tracing takes its time, and the next call is measured
            self._due.taken()
        began = perf_counter()
        losses, mean_wish, stamps = self._call(self._stamped, steps, wish)
        seconds = perf_counter() - began
        scalars: dict[str, float] = {}
        if measured:
            parts = parts_of(Moments.of(*stamps, replicas=self._replicas), seconds=seconds)
            scalars = {part.series: ms for part, ms in parts.items()}
        yield Execution(losses=losses.tolist(), seconds=seconds, wish=mean_wish, is_plain=False, scalars=scalars)

    def run(self, steps: int, wish: int) -> tuple[Any, float]:
        losses, mean_wish, _ = self._call(self._plain, steps, wish)
        return losses, mean_wish

    def _call(self, function: Any, steps: int, wish: int) -> tuple[Any, float, list[Any]]:
        """Losses, the gang's mean wish, the stamps if there are any. Who is due to measure asks all for the next."""
        asked = tf.constant([wish, bool(self._due)], tf.float32)
        losses, answers, *stamps = function(self._iterator, tf.constant(steps, tf.int32), asked)
        wishes, due = answers.numpy()
        self._is_asked = due > 0
        return losses.numpy(), float(wishes) / self._replicas, [each.numpy() for each in stamps]

    def _execution(self, iterator: Any, steps: tf.Tensor, asked: tf.Tensor, *, stamped: bool) -> tuple[tf.Tensor, ...]:
        """A graph loop written out: AutoGraph would take a second to rewrite it, at every start of a training."""

        def one_step(i: tf.Tensor, losses: Any, _: tf.Tensor, *before: Any) -> tuple[Any, ...]:
            began = [moment(i)] if stamped else []
            with tf.control_dependencies(began):
                self._rate.before_step(self.count)
                batches = tuple(next(iterator) for _ in range(self._parts))
            since = tf.where(i > 0, before[1], began[0]) if stamped else None
            told = self._strategy.run(self._replica_step, args=(batches, asked, since))
            each = self._strategy.experimental_local_results(told)
            first = each[0][0]  # global already, the same everywhere
            self.count.assign_add(1)
            self._learner.average_weights()
            if stamped:
                stamps = [stamps for _, *stamps in each]
                before = (before[0].write(i, row_of(began[0], stamps)), tf.reduce_max([at[-1] for at, _ in stamps]))
            return i + 1, losses.write(i, first[0]), first[1:], *before

        losses = tf.TensorArray(tf.float32, size=steps, element_shape=())
        rows = [tf.TensorArray(tf.float64, size=steps), tf.constant(0.0, tf.float64)] if stamped else []
        start = (tf.constant(0), losses, tf.zeros(2), *rows)
        _, losses, answers, *rows = tf.while_loop(lambda i, *_: i < steps, one_step, start, parallel_iterations=1)
        stacked = losses.stack()
        return (stacked, answers, rows[0].stack(), moment(stacked)) if stamped else (stacked, answers)

    def _stock_step(self, batches: tuple[Any, ...], asked: tf.Tensor, since: tf.Tensor | None) -> tuple[tf.Tensor, ...]:
        """The loss is a sum over parts and replicas, each weighted by its share of the rows; so are the gradients."""
        stamps = ReplicaStamps(since, replicas=self._replicas)
        stamps.take(batches)
        total: list[Any] = []
        for batch in batches:
            gradients, loss, share = self._part(batch)
            part = [*gradients, loss, share]
            total = [added(before, now) for before, now in zip(total, part, strict=True)] if total else part
        *gradients, loss, share = total
        stamps.take(total, device_number=loss)
        *gradients, numbers = all_reduce([*gradients, _packed(loss, share, asked, stamps.own())])
        stamps.take([gradients, numbers], device_number=numbers[0])
        loss, share = numbers[0], numbers[1]
        self._learner.apply([divided(gradient, share) for gradient in gradients])
        return _told(loss / share, numbers, stamps)

    def _own_step(self, batches: tuple[Any, ...], asked: tf.Tensor, since: tf.Tensor | None) -> tuple[tf.Tensor, ...]:
        """A train_step of the recipe's own. Its loss is what it added to its loss metric, else what it returns. All
        that it does counts as computed."""
        stamps = ReplicaStamps(since, replicas=self._replicas)
        stamps.take(batches)
        tracker = self._learner.own_loss()
        before = [tf.identity(tracker.total), tf.identity(tracker.count)] if tracker else []
        logs = self._learner.model.train_step(batches[0])
        if tracker:
            now = [tf.identity(tracker.total), tf.identity(tracker.count)]
            total, count = (tf.cast(b - a, tf.float32) for a, b in zip(before, now, strict=True))
        elif "loss" in logs:
            total, count = tf.cast(logs["loss"], tf.float32), tf.constant(1.0)
        else:
            raise TrainingFailed("train_step returns no value named loss, and the model has no metric of that name.")
        stamps.take([logs, total, count], device_number=total)
        numbers = all_reduce([_packed(total, count, asked, stamps.own())])[0]
        stamps.take(numbers, device_number=numbers[0])
        return _told(numbers[0] / numbers[1], numbers, stamps)

    def gradients(self, batch: Any) -> tuple[list[Any], tf.Tensor, tf.Tensor]:
        """This replica's part: loss weighted by its share of the rows, and the gradients of that."""
        learner = self._learner
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
        rows = tf.shape(tf.nest.flatten(x)[0])[0]
        share = tf.cast(rows, tf.float32) / self._part_rows
        with tf.GradientTape() as tape:
            y_pred = learner.forward(x, training=True)
            loss = learner.loss(x, y, y_pred, sample_weight, rows, training=True)
            weighted = loss * tf.cast(share, loss.dtype)
            scaled = learner.scaled(weighted)
        gradients = tape.gradient(scaled, learner.trainable)
        learner.note(x, y, y_pred, sample_weight)
        return gradients, tf.cast(weighted, tf.float32), share


def _packed(loss: tf.Tensor, weight: tf.Tensor, asked: tf.Tensor, own: list[tf.Tensor]) -> tf.Tensor:
    """Numbers as one tensor. By itself, a number that no step changes is lost where a loop spans several devices."""
    return tf.concat([tf.stack([loss, weight]), asked, *own], 0)


def _told(loss: tf.Tensor, numbers: tf.Tensor, stamps: ReplicaStamps) -> tuple[tf.Tensor, ...]:
    """The global loss with the answers to what was asked, and the stamps: of what `_packed` made, summed."""
    return tf.concat([[loss], numbers[2:4]], 0), *stamps.told(numbers[4:])


def check_own_step(model: Any, *, parts: int, jit: bool) -> None:
    """Raise `TrainingFailed` where a model brings a train_step, which the loop can neither cut nor compile."""
    if has_own_step(model) and (parts > 1 or jit):
        what = "Gradient accumulation" if parts > 1 else "XLA"
        raise TrainingFailed(f"{what} needs the standard train_step; this model has its own", remedy="leave it off")


def check_jit(model: Any, *, replicas: int) -> None:
    """Raise `TrainingFailed` where XLA cannot compile the step: with layers whose replicas speak with each other."""
    layers = [layer for layer in model._flatten_layers() if getattr(layer, "synchronized", False)]
    if layers and replicas > 1:
        raise TrainingFailed(
            f"XLA cannot compile what the synchronized {layers[0].name} exchanges between replicas",
            remedy="leave it off",
        )
