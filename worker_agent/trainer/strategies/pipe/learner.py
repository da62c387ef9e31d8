"""The model of a pipeline behind the loop's face: its stages one after the other, each on its device."""

from typing import Any

import tensorflow as tf

from worker_agent.trainer.loop.compiled_model import check_model, has_own_step, own_parts
from worker_agent.trainer.loop.keras3 import Keras3
from worker_agent.trainer.outcome import TrainingFailed
from worker_agent.trainer.saving.gang_checkpoints import Variables
from worker_agent.trainer.strategies.pipe.stages import Plan


class PipeLearner(Keras3):
    """Optimizer slots live and are updated beside the weights they belong to."""

    def __init__(self, model: Any, plan: Plan) -> None:
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
        raise TrainingFailed(f"A pipeline cuts each step itself, and this model brings {what}: leave it out.")
    return model


class PipeVariables(Variables):
    """Written and read by the first worker alone: else every process would use its own machine's disk."""

    def write(self, prefix: str) -> None:
        self._checkpoint().write(prefix, options=_first_worker())

    def read(self, prefix: str) -> None:
        self._checkpoint().read(prefix, options=_first_worker()).assert_existing_objects_matched()


def _device_of(variable: Any) -> str:
    """Of a Keras variable, or of the TensorFlow variable in it."""
    return str(variable.device if isinstance(variable, tf.Variable) else variable.value.device)


def _first_worker() -> tf.train.CheckpointOptions:
    first = next(device for device in tf.config.list_logical_devices("CPU"))
    return tf.train.CheckpointOptions(experimental_io_device=first.name)
