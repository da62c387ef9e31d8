"""The stages of a pipeline: which device holds which layers, their variables made there, and the model cut between
them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

from worker_agent.trainer.model.compiled_model import private
from worker_agent.trainer.outcome import TrainingFailed
from worker_agent.trainer.training_run import TrainingRun


def device_names(run: TrainingRun) -> list[str]:
    """The devices of all workers, in order: one stage on each."""
    job = "worker" if len(run.gang) > 1 else "localhost"
    kind = run.device_kind.value.upper()
    return [
        f"/job:{job}/replica:0/task:{worker}/device:{kind}:{device}"
        for worker in range(run.workers)
        for device in range(run.devices)
    ]


class StagePlan:
    """The layers' names by stage, as the recipe declares them, and the device of each stage.

    Raises `TrainingFailed` where the recipe declares none, or another number than there are devices.
    """

    def __init__(self, declared: list[list[str]] | None, devices: list[str]) -> None:
        if declared is None:
            raise TrainingFailed(
                "A pipeline needs build_stages(params, count) in the recipe: the names of the model's layers, "
                "stage by stage."
            )
        if len(declared) != len(devices):
            raise TrainingFailed(
                f"build_stages() gave {len(declared)} stages for {len(devices)} devices",
                remedy="let it give one list of layer names for each device",
            )
        if not all(declared):
            raise TrainingFailed(
                f"build_stages() left a stage of {len(devices)} without layers",
                remedy="use fewer devices, or a deeper model",
            )
        self.devices = devices
        self.layers = declared
        self._device_of = {name: device for names, device in zip(declared, devices, strict=True) for name in names}
        if len(self._device_of) < sum(map(len, declared)):
            raise TrainingFailed("build_stages() names a layer twice: each belongs to one stage.")

    @contextmanager
    def placing(self) -> Iterator[None]:
        """Variables made inside are made on the device of their layer's stage; all others where they would be."""

        current_path = private("keras.src.backend.common.name_scope", "current_path")

        def on_stage(make: Any, **given: Any) -> Any:
            device = next((self._device_of[part] for part in current_path().split("/") if part in self._device_of), "")
            if not device:
                return make(**given)
            with tf.init_scope(), tf.device(device):
                return make(**given)

        with tf.variable_creator_scope(on_stage):
            yield

    def cut(self, model: Any) -> list[Any]:
        """The model as one model per stage, which share its layers: each takes what the one before it gives."""
        if not getattr(model, "inputs", None):
            raise TrainingFailed("A pipeline needs a Sequential or functional model whose input shape is declared.")
        have = {layer.name: layer for layer in model.layers}
        unknown = [name for name in self._device_of if name not in have]
        if unknown:
            raise TrainingFailed(f"build_stages() names {unknown[0]!r}; the model's layers are {', '.join(have)}.")
        homeless = [name for name, layer in have.items() if layer.weights and name not in self._device_of]
        if homeless:
            raise TrainingFailed(f"build_stages() gives the layer {homeless[0]!r} to no stage.")
        stages = []
        is_chain = isinstance(model, keras.Sequential)
        given, last = (model.inputs[0], model.outputs[0]) if is_chain else (model.input, model.output)
        for place, names in enumerate(self.layers, start=1):
            output = last if place == len(self.layers) else have[names[-1]].output
            try:
                stages.append(keras.Model(given, output, name=f"stage_{place}"))
            except ValueError as error:
                raise TrainingFailed(
                    f"The model cannot be split after {names[-1]!r}: later layers use more than its output."
                ) from error
            given = output
        return stages
