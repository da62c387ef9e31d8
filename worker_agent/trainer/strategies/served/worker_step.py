"""What a worker of a parameter-server gang does when it is given an execution: several updates in one call, and what
it tells of them. Traced by the coordinator, run on workers.

The devices of one worker share its update: each computes the gradient of its part of the batch, the sum is applied
once. Nothing below costs a step an extra round trip: the variables read for staleness travel beside the weights, and
metrics are read once per execution.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from worker_agent.trainer.loop.rate import Rate
from worker_agent.trainer.strategies.served.learner import ServedLearner
from worker_agent.trainer.strategies.served.numbered_batches import batch_from, counter


class Result(NamedTuple):
    """What a call of k steps leaves: `losses` (k), `staleness` (k, updates by others between reading the weights
    and applying), the seconds it took, the number of the worker, and the metrics of the epoch so far, over all
    workers."""

    losses: Any
    staleness: Any
    seconds: Any
    worker: Any
    metrics: dict[str, Any]


class WorkerStep:
    """`applied` counts the updates of all workers. A training batch has `rows` rows."""

    def __init__(self, learner: ServedLearner, rate: Rate, *, rows: int) -> None:
        self._strategy = learner.strategy
        self.learner = learner
        self._model = learner.model
        self._rate = rate
        self._rows = rows
        self.applied, self.judged = counter(learner.strategy), counter(learner.strategy)
        self._at_apply: Any = None
        self._watch_apply()
        self.train: Callable[..., Any] = tf.function(self._train, autograph=False)
        self.evaluate: Callable[..., Any] = tf.function(self._evaluate, autograph=False)

    def _train(self, iterator: Any, first: tf.Tensor, steps: tf.Tensor) -> Result:
        """The updates of the batches numbered from `first`."""
        began = tf.timestamp()

        def one_step(i: tf.Tensor, losses: Any, staleness: Any) -> tuple[Any, ...]:
            before = self.applied.read_value()
            self._rate.before_step(before)
            _, batch = batch_from(first + tf.cast(i, tf.int64), iterator)
            part, at_apply = self._strategy.run(self._replica_step, args=(batch,))
            loss = self._strategy.reduce(tf.distribute.ReduceOp.SUM, part, axis=None)
            now = self._strategy.experimental_local_results(at_apply)[0]
            self.applied.assign_add(1)
            return i + 1, losses.write(i, loss), staleness.write(i, now - before)

        losses = tf.TensorArray(tf.float32, size=steps, element_shape=())
        staleness = tf.TensorArray(tf.int64, size=steps, element_shape=())
        _, losses, staleness = tf.while_loop(
            lambda i, *_: i < steps, one_step, (tf.constant(0), losses, staleness), parallel_iterations=1
        )
        stacked = losses.stack()
        with tf.control_dependencies([stacked]):
            return Result(
                losses=stacked,
                staleness=staleness.stack(),
                seconds=tf.timestamp() - began,
                worker=tf.distribute.coordinator.experimental_get_current_worker_index(),
                metrics=dict(self._model.get_metrics_result()),
            )

    def _evaluate(self, iterator: Any, first: tf.Tensor, end: tf.Tensor) -> None:
        """Bring the validation batches numbered `first` to `end` into the metrics. `judged` counts all there begun, and
        those once more in whose place another was found."""
        self.judged.assign_add(end - first)

        def one_batch(number: tf.Tensor, others: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            found, batch = batch_from(number, iterator)
            self._strategy.run(lambda batch: self.learner.judge(self._share(batch)), args=(batch,))
            return number + 1, others + tf.cast(found != number, tf.int64)

        _, others = tf.while_loop(
            lambda number, _: number < end, one_batch, (first, tf.constant(0, tf.int64)), parallel_iterations=1
        )
        self.judged.assign_add(others)

    def _replica_step(self, batch: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """This replica's part of the batch's mean loss, and `applied` just before the update."""
        model, share = self._model, self._share(batch)
        if self.learner.has_own_step:
            loss = model.train_step(share)["loss"] / self.learner.replicas
            return tf.cast(loss, tf.float32), self._at_apply
        x, y, sample_weight = tf.keras.utils.unpack_x_y_sample_weight(share)
        with tf.GradientTape() as tape:
            y_pred = self.learner.forward(x, training=True)
            loss = model.compute_loss(x, y, y_pred, sample_weight)
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        self.learner.note(x, y, y_pred, sample_weight)
        return tf.cast(loss, tf.float32), self._at_apply

    def _share(self, batch: Any) -> Any:
        """The rows of this replica; the last ones of a short batch may have none."""
        if self.learner.replicas == 1:
            return batch
        each = self._rows // self.learner.replicas
        first = tf.distribute.get_replica_context().replica_id_in_sync_group * each
        with tf.device("/device:CPU:0"):
            return tf.nest.map_structure(lambda rows: rows[first : first + each], batch)

    def _watch_apply(self) -> None:
        """Have the count of updates read when the gradients are there and before they are applied."""
        optimizer = self._model.optimizer
        apply = optimizer.apply_gradients

        def watched(grads_and_vars: Any, **given: Any) -> Any:
            pairs = list(grads_and_vars)
            tensors = tf.nest.flatten([gradient for gradient, _ in pairs], expand_composites=True)
            with tf.control_dependencies([tensor for tensor in tensors if tensor is not None]):
                self._at_apply = self.applied.read_value()
            return apply(pairs, **given)

        optimizer.apply_gradients = watched
