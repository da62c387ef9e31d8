"""The model of a pipeline behind the loop's face: its stages one after the other, each on its device."""

from typing import Any

import tensorflow as tf

from worker_agent.trainer.model.compiled_model import check_model, has_own_step, own_parts
from worker_agent.trainer.model.keras3 import Keras3
from worker_agent.trainer.outcome import TrainingFailed
from worker_agent.trainer.strategies.pipe.stages import StagePlan


class PipeLearner(Keras3):
    """Optimizer slots live and are updated beside the weights they belong to."""

    def __init__(self, model: Any, plan: StagePlan) -> None:
        super().__init__(checked(model), tf.distribute.get_strategy())
        self.plan = plan
        self.stages = plan.cut(model)
        self._stay_beside_weights()

    def forward(self, x: Any, *, training: bool) -> Any:
        for stage, device in zip(self.stages, self.plan.devices, strict=True):
            with tf.device(device):
                x = stage(x, training=training)
        return x

    def loss(self, x: Any, y: Any, y_pred: Any, sample_weight: Any, rows: tf.Tensor, *, training: bool) -> tf.Tensor:
        with tf.device(self.plan.devices[-1]):
            return super().loss(x, y, y_pred, sample_weight, rows, training=training)

    def _stay_beside_weights(self) -> None:
        optimizer = self.optimizer
        add, update = optimizer.add_variable_from_reference, optimizer.update_step

        def added(reference_variable: Any, *given: Any, **named: Any) -> Any:
            with tf.device(_device_of(reference_variable)):
                return add(reference_variable, *given, **named)

        def updated(gradient: Any, variable: Any, rate: Any) -> Any:
            with tf.device(_device_of(variable)):
                return update(gradient, variable, rate)

        optimizer.add_variable_from_reference, optimizer.update_step = added, updated


def checked(model: Any) -> Any:
    """The model of `build_model`; raises `TrainingFailed` for what a pipeline does by itself."""
    what = "a train_step of its own" if has_own_step(check_model(model)) else ""
    if own_parts(model) > 1:
        what = what or "gradient_accumulation_steps"
    if what:
        raise TrainingFailed(f"A pipeline splits each step itself, and this model has {what}", remedy="leave it out")
    return model


def _device_of(variable: Any) -> str:
    """Of a Keras variable, or of the TensorFlow variable in it."""
    return str(variable.device if isinstance(variable, tf.Variable) else variable.value.device)
