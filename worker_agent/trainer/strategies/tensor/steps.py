"""Training and validation steps on a mesh: one function over all devices, which DTensor splits.

State goes through a step as values: every variable is read once at its beginning and written once at its end. (Read
again after a write in the same function, a mesh variable may show its old value.)
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor

from worker_agent.trainer.loop.evaluate import nobody_looks
from worker_agent.trainer.loop.rate import Rate
from worker_agent.trainer.recipe import data
from worker_agent.trainer.setup.stopping import StopSignal
from worker_agent.trainer.strategies.tensor.mesh import BATCH, WHOLE, Mesh
from worker_agent.trainer.strategies.tensor.pins import Pins


class MeshModel:
    """What the loop's driver asks of a model, and how it is run on the mesh."""

    def __init__(self, model: Any, pins: Pins) -> None:
        self.model = model
        self._pins = pins

    def forward(self, x: Any, *, training: bool, rows_by: str = BATCH) -> Any:
        """The model's outputs; `training` only where its `call` knows the word."""
        with self._pins.on(rows_by, tf.nest.flatten(x)[0].shape[0]):
            return self._outputs(x, training=training)

    def _outputs(self, x: Any, *, training: bool) -> Any:
        return self.model(x, training=training) if self.model._call_has_training_arg else self.model(x)

    def metrics_now(self) -> dict[str, float]:
        """Loss and compiled metrics since they were reset, nested ones flattened: from plain copies of their states."""
        states = [(variable, tf.constant(variable.numpy())) for variable in self.model.metrics_variables]
        with keras.StatelessScope(state_mapping=states):
            result = self.model.get_metrics_result()
        flat: dict[str, float] = {}
        for name, value in result.items():
            parts = value if isinstance(value, dict) else {name: value}
            flat.update({key: float(part) for key, part in parts.items()})
        return flat

    def finish(self) -> None:
        """Nothing is left to do after the last step."""


class Steps:
    """The training steps; `variables` are all there are."""

    def __init__(self, *, mesh: Mesh, learner: MeshModel, variables: list[Any], rate: Rate, train_data: Any) -> None:
        self._mesh = mesh
        self._learner = learner
        self._model = learner.model
        self._rate = rate
        self._batches = iter(train_data)
        self.count = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._step = tf.function(on_values(variables, self._train_step), autograph=False)

    def run(self, count: int, wish: int) -> tuple[np.ndarray, float]:
        """`count` optimizer steps: their losses, and the mean of the processes' wishes."""
        # Asked for only after the last step was handed over: one is computed while the next is prepared.
        losses = [self._one() for _ in range(count)]
        told = np.array([float(dtensor.unpack(loss)[0].numpy()) for loss in losses], np.float32)
        self.count.assign_add(count)
        return told, self._mesh.mean(float(wish))

    def _one(self) -> Any:
        batch = tf.nest.map_structure(self._mesh.pack_rows, next(self._batches))
        with dtensor.default_mesh(self._mesh.grid):
            return self._step(batch)

    def _train_step(self, batch: Any) -> tf.Tensor:
        model = self._model
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
        self._rate.before_step(model.optimizer.iterations)
        weights = [variable.value for variable in model.trainable_variables]
        with tf.GradientTape() as tape:
            tape.watch(weights)
            y_pred = self._learner.forward(x, training=True)
            loss = model._compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=True)
        gradients = tape.gradient(loss, weights)
        dense = [None if each is None else tf.convert_to_tensor(each) for each in gradients]
        model.optimizer.apply(dense, model.trainable_variables)
        model._loss_tracker.update_state(loss, sample_weight=tf.nest.flatten(x)[0].shape[0])
        model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)
        return tf.cast(loss, tf.float32)


class Evaluation:
    """Exact on every row: whole batches are split over the mesh, the rows that are left go whole to every device."""

    def __init__(
        self,
        *,
        mesh: Mesh,
        learner: MeshModel,
        variables: list[Any],
        rows: data.Rows,
        batch: int,
        stop: StopSignal,
    ) -> None:
        self._mesh = mesh
        self._learner = learner
        self._model = learner.model
        self._stop = stop
        share = mesh.share
        full = data.count_rows(rows.whole) // batch * batch
        self._split = rows.whole.take(full).shard(share.parts, share.part).batch(batch // share.parts)
        self._rest = rows.whole.skip(full).batch(batch)
        self._split_step, self._whole_step = (
            tf.function(on_values(variables, partial(self._validation_step, by)), autograph=False)
            for by in (BATCH, WHOLE)
        )

    def run(self, moves: Callable[[], None] = nobody_looks) -> dict[str, float]:
        """Loss and metrics of the whole validation set; `moves` is called for each batch. Leaves the metrics reset."""
        self._model.reset_metrics()
        for rows, pack, step in (
            (self._split, self._mesh.pack_rows, self._split_step),
            (self._rest, self._mesh.pack_whole, self._whole_step),
        ):
            for batch in rows.prefetch(tf.data.AUTOTUNE):
                self._stop.check()
                moves()
                packed = tf.nest.map_structure(pack, batch)
                with dtensor.default_mesh(self._mesh.grid):
                    step(packed)
        result = self._learner.metrics_now()
        self._model.reset_metrics()
        return result

    def _validation_step(self, rows_by: str, batch: Any) -> None:
        model = self._model
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
        y_pred = self._learner.forward(x, training=False, rows_by=rows_by)
        loss = model._compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=False)
        model._loss_tracker.update_state(loss, sample_weight=tf.nest.flatten(x)[0].shape[0])
        model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)


def on_values(variables: list[Any], body: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`body` with every variable read before it and, where it changed it, written after it."""

    def step(batch: Any) -> Any:
        first = [variable._value.read_value() for variable in variables]
        with keras.StatelessScope(state_mapping=list(zip(variables, first, strict=True))) as scope:
            before = [scope.get_current_value(variable) for variable in variables]
            result = body(batch)
            after = [scope.get_current_value(variable) for variable in variables]
        for variable, old, new in zip(variables, before, after, strict=True):
            if new is not old:
                variable._value.assign(new)
        return result

    return step
