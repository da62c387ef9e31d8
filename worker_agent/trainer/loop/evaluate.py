"""Validation, and the metrics of an epoch. Everything here is a collective: each worker of a gang calls it."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from worker_agent.trainer.loop.step import forward
from worker_agent.trainer.stopping import StopSignal


class Evaluation:
    """Exact on every row: no collective inside a batch, so workers may have different numbers of batches; metric
    variables are summed over replicas only when they are read."""

    def __init__(self, strategy: tf.distribute.Strategy, model: Any, data: Callable[[], Any], stop: StopSignal) -> None:
        self._strategy = strategy
        self._model = model
        self._data = data()
        self._stop = stop
        self._step = tf.function(
            lambda batch: strategy.run(self._replica_step, args=(batch,)), reduce_retracing=True, autograph=False
        )

    def run(self) -> dict[str, float]:
        """Loss and metrics of the whole validation set. Leaves the model's metrics reset."""
        self._model.reset_metrics()
        for batch in self._data:
            self._stop.check()
            self._step(batch)
        result = metrics_now(self._model)
        self._model.reset_metrics()
        return result

    def _replica_step(self, batch: Any) -> None:
        model = self._model
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
        rows = tf.shape(tf.nest.flatten(x)[0])[0]
        y_pred = forward(model, x, training=False)
        loss = model._compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=False)
        loss = loss * tf.cast(self._strategy.num_replicas_in_sync, loss.dtype)
        # The last round may leave a replica without rows, and the mean of nothing is NaN.
        model._loss_tracker.update_state(tf.where(rows > 0, loss, tf.zeros_like(loss)), sample_weight=rows)
        model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)


def metrics_now(model: Any) -> dict[str, float]:
    """Loss and compiled metrics over all replicas and workers since they were reset, nested ones flattened."""
    flat: dict[str, float] = {}
    for name, value in model.get_metrics_result().items():
        if isinstance(value, dict):
            flat.update({key: float(part) for key, part in value.items()})
        else:
            flat[name] = float(value)
    return flat


def state_averager(model: Any, strategy: tf.distribute.Strategy) -> Callable[[], None]:
    """BatchNormalization's moving statistics are each replica's own in Keras 3: a call averages them, before use."""
    floats = [variable.value for variable in model.non_trainable_variables if "float" in variable.dtype]
    if not floats or strategy.num_replicas_in_sync == 1:
        return lambda: None

    def mean() -> None:
        values = [tf.identity(value) for value in floats]
        reduced = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, values)
        for variable, value in zip(floats, reduced, strict=True):
            variable.assign(value)

    return tf.function(lambda: strategy.run(mean), autograph=False)
