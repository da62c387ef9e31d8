"""The training step: many steps per call, one packed all-reduce each, and the true global loss of every one.

What it guarantees, and Keras' own `fit` does not: the global batch is the unit of truth (unequal replica batches are
weighted by rows), and gradient clipping, loss scaling and accumulation see the all-reduced gradient, so one, two or
three workers take the same step.
"""

from typing import Any

import keras
import tensorflow as tf

from worker_agent.trainer.loop.prepare import Taken
from worker_agent.trainer.loop.rate import Rate
from worker_agent.trainer.outcome import TrainingFailed

_SUM = tf.distribute.ReduceOp.SUM


class Steps:
    """Runs executions of k steps. The model's variables exist already (`prepare.create_variables`).

    With the optimizer's own accumulation, one step consumes `taken.accumulate` global batches.
    """

    def __init__(
        self,
        *,
        strategy: tf.distribute.Strategy,
        model: Any,
        taken: Taken,
        rate: Rate,
        train_data: Any,
        global_batch: int,
    ) -> None:
        self._strategy = strategy
        self._model = model
        self._taken = taken
        self._rate = rate
        self._replicas = strategy.num_replicas_in_sync
        self._replica_rows = global_batch / self._replicas
        self._iterator = iter(train_data)
        with strategy.scope():
            self.count = tf.Variable(
                0, dtype=tf.int64, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA
            )
        self._replica_step = self._stock_step
        if type(model).train_step is not keras.Model.train_step:
            if taken.accumulate > 1:
                raise TrainingFailed("Gradient accumulation needs the stock train_step; this model brings its own.")
            self._replica_step = self._own_step
            apply = model.optimizer.apply
            # A user's train_step calls apply or apply_gradients; both end here.
            model.optimizer.apply = lambda grads, variables=None: apply(_all_reduce(grads), variables)
        self._execute = tf.function(self._execution, reduce_retracing=True, autograph=False)

    def run(self, steps: int, wish: int) -> tuple[Any, float]:
        """`steps` optimizer steps: their global losses (array), and the gang's mean `wish`."""
        losses, wishes = self._execute(self._iterator, tf.constant(steps, tf.int32), tf.constant(wish, tf.float32))
        return losses.numpy(), float(wishes.numpy()) / self._replicas

    def _execution(self, iterator: Any, steps: tf.Tensor, wish: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """A graph loop written out: AutoGraph would take a second to rewrite it, at every start of a training."""

        def one_step(i: tf.Tensor, losses: Any, _: tf.Tensor) -> tuple[tf.Tensor, Any, tf.Tensor]:
            self._rate.before_step(self.count)
            batches = tuple(next(iterator) for _ in range(self._taken.accumulate))
            told = self._strategy.run(self._replica_step, args=(batches, wish))
            first = self._strategy.experimental_local_results(told)[0]  # global already, the same everywhere
            self.count.assign_add(1)
            self._average_weights()
            return i + 1, losses.write(i, first[0]), first[1]

        losses = tf.TensorArray(tf.float32, size=steps, element_shape=())
        start = (tf.constant(0), losses, tf.constant(0.0))
        _, losses, wishes = tf.while_loop(lambda i, *_: i < steps, one_step, start, parallel_iterations=1)
        return losses.stack(), wishes

    def _average_weights(self) -> None:
        """The optimizer's moving average over the weights, when it is due."""
        if not self._taken.average_every:
            return
        optimizer = self._taken.optimizer
        tf.cond(
            tf.cast(optimizer.iterations, tf.int64) % self._taken.average_every == 0,
            lambda: optimizer._overwrite_model_variables_with_average_value(self._model.trainable_variables),
            lambda: None,
        )

    def _stock_step(self, batches: tuple[Any, ...], wish: tf.Tensor) -> tf.Tensor:
        total: list[Any] | None = None
        for batch in batches:
            gradients, loss, share = self._gradients(batch)
            dense = [None if g is None else tf.convert_to_tensor(g) for g in gradients]
            total = [*dense, loss, share] if total is None else _added(total, [*dense, loss, share])
        *gradients, loss, share, wishes = _all_reduce([*(total or []), wish])
        gradients = [None if g is None else g / tf.cast(share, g.dtype) for g in gradients]
        self._model.optimizer.apply(gradients, self._model.trainable_weights)
        return tf.stack([loss / share, wishes])

    def _own_step(self, batches: tuple[Any, ...], wish: tf.Tensor) -> tf.Tensor:
        """A train_step of the user's: its loss is the running mean it reports, not the step's own."""
        logs = self._model.train_step(batches[0])
        loss, wishes = _all_reduce([tf.cast(logs["loss"], tf.float32) / self._replicas, wish])
        return tf.stack([loss, wishes])

    def _gradients(self, batch: Any) -> tuple[list[Any], tf.Tensor, tf.Tensor]:
        """This replica's part: loss weighted by its share of the rows, and the gradients of that."""
        model = self._model
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
        rows = tf.cast(tf.shape(tf.nest.flatten(x)[0])[0], tf.float32)
        share = rows / self._replica_rows
        with tf.GradientTape() as tape:
            y_pred = forward(model, x, training=True)
            loss = model._compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=True)
            loss = loss * tf.cast(self._replicas, loss.dtype)  # undo Keras' division by the replicas
            weighted = loss * tf.cast(share, loss.dtype)
            scaled = model.optimizer.scale_loss(weighted)
        gradients = tape.gradient(scaled, model.trainable_weights)
        model._loss_tracker.update_state(loss, sample_weight=rows)
        model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)
        return gradients, tf.cast(weighted, tf.float32), share


def forward(model: Any, x: Any, *, training: bool) -> Any:
    """The model's outputs; `training` only where its `call` knows the word."""
    return model(x, training=training) if model._call_has_training_arg else model(x)


def _all_reduce(values: list[Any]) -> list[Any]:
    """One packed collective for dense values; None stays None. Sparse gradients become dense."""
    dense = [tf.identity(tf.convert_to_tensor(value)) for value in values if value is not None]
    reduced = iter(tf.distribute.get_replica_context().all_reduce(_SUM, dense))
    return [None if value is None else next(reduced) for value in values]


def _added(left: list[Any], right: list[Any]) -> list[Any]:
    return [b if a is None else a if b is None else a + b for a, b in zip(left, right, strict=True)]
