"""The model of a mesh behind the loop's face, and how it is run there."""

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from worker_agent.trainer.model.learner import Learner
from worker_agent.trainer.strategies.tensor import variables
from worker_agent.trainer.strategies.tensor.mesh import BATCH
from worker_agent.trainer.strategies.tensor.pins import Pins


class MeshLearner(Learner):
    """Its variables live on the mesh; all of a batch goes through it at once."""

    def __init__(self, model: Any, pins: Pins) -> None:
        super().__init__(model)
        self._pins = pins

    def noted_loss(self, batch: Any, *, training: bool, rows_by: str = BATCH) -> tf.Tensor:
        """The mean loss of a batch, noted with all metrics; `rows_by` is what splits its rows."""
        model = self.model
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
        rows = tf.nest.flatten(x)[0].shape[0]
        with self._pins.on(rows_by, rows):
            y_pred = model(x, training=training) if model._call_has_training_arg else model(x)
        loss = model._compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=training)
        model._loss_tracker.update_state(loss, sample_weight=rows)
        model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)
        return loss

    def results(self) -> Mapping[str, Any]:
        """From plain copies of the metrics' states."""
        states = [(variable, tf.constant(variable.numpy())) for variable in self.model.metrics_variables]
        with keras.StatelessScope(state_mapping=states):
            return super().results()

    def whole_model(self, *, keep: bool) -> Any:
        variables.bring_together(self.model, keep=keep)
        return self.model
