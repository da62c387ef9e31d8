"""Validation, and the averaging before it. Everything here is a collective: each worker of a gang calls it."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from worker_agent.trainer.loop.learner import Learner
from worker_agent.trainer.setup.stopping import StopSignal


def nobody_looks() -> None:
    """What is called for each batch where nobody wants to know."""


class Evaluation:
    """Exact on every row: no collective inside a batch, so workers may have different numbers of batches; metric
    variables are summed over replicas only when they are read."""

    def __init__(self, learner: Learner, data: Callable[[], Any], stop: StopSignal) -> None:
        self._learner = learner
        self._data = data()
        self._stop = stop
        self._step = tf.function(
            lambda batch: learner.strategy.run(self._replica_step, args=(batch,)),
            reduce_retracing=True,
            autograph=False,
        )

    def run(self, moves: Callable[[], None] = nobody_looks) -> dict[str, float]:
        """Loss and metrics of the whole validation set; `moves` is called for each batch. Leaves the metrics reset."""
        self._learner.model.reset_metrics()
        for batch in self._data:
            self._stop.check()
            moves()
            self._step(batch)
        result = self._learner.metrics_now()
        self._learner.model.reset_metrics()
        return result

    def _replica_step(self, batch: Any) -> None:
        learner = self._learner
        if learner.has_own_test:
            learner.model.test_step(batch)
            return
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
        rows = tf.shape(tf.nest.flatten(x)[0])[0]
        y_pred = learner.forward(x, training=False)
        learner.loss(x, y, y_pred, sample_weight, rows, training=False)
        learner.note(x, y, y_pred, sample_weight)


def state_averager(learner: Learner) -> Callable[[], None]:
    """A call averages, before use, what each replica moved for itself (see `Learner.moving_state`)."""
    floats = learner.moving_state
    if not floats or learner.strategy.num_replicas_in_sync == 1:
        return lambda: None

    def mean() -> None:
        values = [tf.identity(value) for value in floats]
        reduced = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, values)
        for variable, value in zip(floats, reduced, strict=True):
            variable.assign(value)

    return tf.function(lambda: learner.strategy.run(mean), autograph=False)
