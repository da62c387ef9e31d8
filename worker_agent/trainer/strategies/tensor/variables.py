"""A Keras 3 model whose variables live on a mesh, none of them ever whole in more than one place.

Keras' variables get a DTensor variable as their value: the model, its loss, its metrics and its optimizer then work as
they are. They are created deferred, without a value; then one after the other is computed as on a single device, its
parts are kept, and the whole is dropped, so a process needs its own parts and the largest variable at a time.
"""

import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor

from worker_agent.trainer.model.compiled_model import check_model, once_each, private, require
from worker_agent.trainer.model.deferred import deferred
from worker_agent.trainer.model.keras3 import MODEL_NAMES
from worker_agent.trainer.outcome import TrainingFailed
from worker_agent.trainer.strategies.tensor.mesh import WHOLE, Mesh, Specs

OPTIMIZERS = (keras.optimizers.SGD, keras.optimizers.Adam, keras.optimizers.AdamW)
TFOptimizer = private("keras.src.backend.tensorflow.optimizer", "TFOptimizer")
BaseOptimizer = private("keras.src.optimizers.base_optimizer", "BaseOptimizer")
require(BaseOptimizer, "add_variable_from_reference")


class MeshVariable(dtensor.DVariable):
    """A variable on a mesh that can be read and set from Python; both are collectives where it is split."""

    def __init__(self, value: Any, *, mesh: Mesh, specs: Specs, **given: Any) -> None:
        self._mesh = mesh
        self.specs = specs
        super().__init__(mesh.scatter(value, specs), **given)

    def numpy(self) -> np.ndarray:
        """The whole value."""
        return self._mesh.gather(self.read_value())

    def assign(self, value: Any, *args: Any, **given: Any) -> Any:
        """Set the value, from Python a whole one."""
        if tf.executing_eagerly() and not dtensor.is_dtensor(value):
            value = self._mesh.scatter(value, self.specs)
        with dtensor.default_mesh(self._mesh.grid):
            return super().assign(dtensor.relayout(value, self.layout), *args, **given)

    @property
    def bytes_here(self) -> int:
        """What the devices of this process hold of it."""
        return sum(map(_count, self._parts())) * self.dtype.size

    @property
    def elements_here(self) -> int:
        """How many different numbers of it this process holds."""
        return sum(map(_count, set(self._parts())))

    def _parts(self) -> list[tuple[tuple[int, int, int], ...]]:
        """The stretches of its axes that each device of this process holds."""
        shape = tuple(self.shape)
        held = self._mesh.local_slices(self.specs, shape)
        return [tuple(part.indices(n) for part, n in zip(each, shape, strict=True)) for each in held]


def _count(part: tuple[tuple[int, int, int], ...]) -> int:
    return math.prod(stop - start for start, stop, _ in part)


def place(variable: Any, mesh: Mesh, specs: Specs) -> None:
    """Give `variable` its first value on the mesh."""
    if variable._value is None:
        first = variable._initializer(tuple(variable._shape), dtype=variable._dtype)
    else:
        first = variable._value
    name = variable.path.replace("/", "_")
    variable._initialize(MeshVariable(first.numpy(), mesh=mesh, specs=specs, trainable=variable.trainable, name=name))
    variable._initializer = None


def place_all(model: Any, mesh: Mesh, layouts: dict[str, Specs], batch: Any) -> list[Any]:
    """Everything of a model made `deferred`: weights, then what belongs to them in the optimizer, metrics.

    `batch` holds symbols of one batch. Returns all variables in a fixed order.
    """
    for variable in model.variables:
        place(variable, mesh, layouts[variable.path])
    optimizer = model.optimizer
    _use_plain(optimizer)
    slots: dict[int, Any] = {}
    add = optimizer.add_variable_from_reference

    def remember(reference_variable: Any, *args: Any, **given: Any) -> Any:
        slot = add(reference_variable, *args, **given)
        slots[id(slot)] = reference_variable
        return slot

    optimizer.add_variable_from_reference = remember
    with deferred():
        model._symbolic_build(data_batch=batch)
        if not optimizer.built:
            optimizer.build(model.trainable_variables)
    for variable in [*optimizer.variables, *model.metrics_variables]:
        reference = slots.get(id(variable))
        whole = [WHOLE] * len(variable.shape)
        place(variable, mesh, whole if reference is None else layouts[reference.path])
    return [*model.variables, *optimizer.variables, *model.metrics_variables]


def values_of(model: Any) -> list[Any]:
    """What a checkpoint holds, in the order in which every strategy lists it (`Learner.state`)."""
    listed = [*model.variables, *model.metrics_variables, *model.optimizer.variables]
    return once_each(each._value for each in listed)


def bring_together(model: Any, *, keep: bool) -> None:
    """Gather every variable whole, one after the other, in all processes. Where they are kept, the model is off the
    mesh afterwards: an ordinary one, as if it had been trained on one device. The last thing a training does."""
    for variable in [*model.variables, *model.optimizer.variables, *model.metrics_variables]:
        whole = variable._value.numpy()
        if keep:
            variable._initialize(tf.Variable(whole, trainable=variable.trainable, name=variable.name))


def checked(model: Any) -> Any:
    """The model of `build_model`; raises `TrainingFailed` for what is not known to compute the same on a mesh."""
    optimizer = check_model(model).optimizer
    require(model, *MODEL_NAMES)
    if type(model).train_step is not keras.Model.train_step:
        raise TrainingFailed("Tensor parallel does not support a train_step of the recipe", remedy="leave it out")
    if type(optimizer) not in OPTIMIZERS:
        known = ", ".join(kind.__name__ for kind in OPTIMIZERS)
        raise TrainingFailed(f"Tensor parallel trains with {known}, not with {type(optimizer).__name__}.")
    if optimizer.use_ema or optimizer.gradient_accumulation_steps:
        raise TrainingFailed(
            "Tensor parallel does not support use_ema or gradient_accumulation_steps", remedy="leave them out"
        )
    return model


def _use_plain(optimizer: Any) -> None:
    """Keras' TensorFlow optimizer updates through tf.distribute, which knows no mesh: its plain methods do not."""
    for name in vars(TFOptimizer):
        plain = vars(BaseOptimizer).get(name)
        if callable(plain) and not name.startswith("__") and getattr(type(optimizer), name) is vars(TFOptimizer)[name]:
            setattr(optimizer, name, plain.__get__(optimizer))
