"""tf_keras behind the loop's face. Its optimizers can be told that gradients are reduced already, and average weights
by themselves; statistics that replicas move for themselves it averages whenever they are read."""

from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

import tensorflow as tf

from worker_agent.trainer.model.compiled_model import once_each, require
from worker_agent.trainer.model.learner import ReplicaLearner

_MODEL_NAMES = ("compiled_loss", "_expects_training_arg")


class TfKeras(ReplicaLearner):
    """tf_keras notes the loss while it computes it, and reads metrics over all replicas where there are several."""

    saves_together = True  # metrics are saved with the model, and read over all replicas

    def __init__(self, model: Any, strategy: tf.distribute.Strategy) -> None:
        super().__init__(model, strategy)
        require(model, *_MODEL_NAMES)
        self._scales_loss = hasattr(model.optimizer, "get_scaled_loss")

    def create_variables(self, element_spec: Any) -> None:
        """One batch of zeros through the model, in the replicas: what tf_keras creates lazily has to exist now."""

        def zeros(spec: tf.TensorSpec) -> tf.Tensor:
            return tf.zeros([size or 1 for size in spec.shape], spec.dtype)

        def touch() -> None:
            x, y, sample_weight = tf.keras.utils.unpack_x_y_sample_weight(tf.nest.map_structure(zeros, element_spec))
            y_pred = self.forward(x, training=False)
            with suppress(Exception) if self.has_own_step else nullcontext():  # it may well have a loss of its own
                self.loss(x, y, y_pred, sample_weight, tf.constant(0), training=False)
                self.note(x, y, y_pred, sample_weight)

        self._in_replicas(touch)
        with self.strategy.scope():
            self.optimizer.build(self.model.trainable_variables)
        self.model.reset_metrics()

    def forward(self, x: Any, *, training: bool) -> Any:
        return self.model(x, training=training) if self.model._expects_training_arg else self.model(x)

    def loss(self, x: Any, y: Any, y_pred: Any, sample_weight: Any, rows: tf.Tensor, *, training: bool) -> tf.Tensor:
        loss = self.model.compute_loss(x, y, y_pred, sample_weight)
        return loss * tf.cast(self.replicas, loss.dtype)  # undo tf_keras' division by the replicas

    def scaled(self, loss: tf.Tensor) -> tf.Tensor:
        return self.model.optimizer.get_scaled_loss(loss) if self._scales_loss else loss

    def note(self, x: Any, y: Any, y_pred: Any, sample_weight: Any) -> None:
        """Without reading the results, which would gather them from all replicas in every step, unless the model's own
        way of computing metrics does."""
        if type(self.model).compute_metrics is tf.keras.Model.compute_metrics:
            self.model.compiled_metrics.update_state(y, y_pred, sample_weight)
        else:
            self.model.compute_metrics(x, y, y_pred, sample_weight)

    def apply(self, gradients: list[Any]) -> None:
        optimizer = self.model.optimizer
        if self._scales_loss:
            gradients = optimizer.get_unscaled_gradients(gradients)
        optimizer.apply_gradients(
            zip(gradients, self.model.trainable_variables, strict=True), experimental_aggregate_gradients=False
        )

    @property
    def state(self) -> list[tf.Variable]:
        rate = getattr(self.optimizer, "_learning_rate", None)  # which is not among the optimizer's variables
        rates = [rate] if hasattr(rate, "assign") else []
        return once_each([*self.model.variables, *self.metric_variables, *self.model.optimizer.variables, *rates])

    def _in_replicas(self, function: Callable[[], None]) -> None:
        tf.function(lambda: self.strategy.run(function), autograph=False)()
