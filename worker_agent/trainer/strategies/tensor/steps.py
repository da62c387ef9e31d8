"""Training and validation steps on a mesh: one function over all devices, which DTensor splits.

State goes through a step as values: every variable is read once at its beginning and written once at its end. (Read
again after a write in the same function, a mesh variable may show its old value.)
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor

from worker_agent.trainer.loop.evaluate import Evaluation
from worker_agent.trainer.loop.rate import Rate
from worker_agent.trainer.loop.steps import BlockingSteps
from worker_agent.trainer.recipe import data
from worker_agent.trainer.setup.stopping import StopSignal
from worker_agent.trainer.strategies.tensor.learner import MeshLearner
from worker_agent.trainer.strategies.tensor.mesh import BATCH, WHOLE, Mesh


class MeshSteps(BlockingSteps):
    """The training steps; `variables` are all there are."""

    def __init__(self, *, mesh: Mesh, learner: MeshLearner, variables: list[Any], rate: Rate, train_data: Any) -> None:
        self._mesh = mesh
        self._learner = learner
        self._rate = rate
        self._batches = iter(train_data)
        self.count = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._step = tf.function(on_values(variables, self._train_step), autograph=False)

    def run(self, steps: int, wish: int) -> tuple[np.ndarray, float]:
        # Asked for only after the last step was handed over: one is computed while the next is prepared.
        losses = [self._one() for _ in range(steps)]
        values = np.array([float(dtensor.unpack(loss)[0].numpy()) for loss in losses], np.float32)
        self.count.assign_add(steps)
        return values, self._mesh.mean(float(wish))

    def _one(self) -> Any:
        batch = tf.nest.map_structure(self._mesh.pack_rows, next(self._batches))
        with dtensor.default_mesh(self._mesh.grid):
            return self._step(batch)

    def _train_step(self, batch: Any) -> tf.Tensor:
        model = self._learner.model
        self._rate.before_step(model.optimizer.iterations)
        weights = [variable.value for variable in model.trainable_variables]
        with tf.GradientTape() as tape:
            tape.watch(weights)
            loss = self._learner.noted_loss(batch, training=True)
        gradients = tape.gradient(loss, weights)
        dense = [None if each is None else tf.convert_to_tensor(each) for each in gradients]
        model.optimizer.apply(dense, model.trainable_variables)
        return tf.cast(loss, tf.float32)


class MeshEvaluation(Evaluation):
    """Exact on every row: whole batches are split over the mesh, the rows that are left go whole to every device."""

    def __init__(
        self, *, mesh: Mesh, learner: MeshLearner, variables: list[Any], rows: data.Rows, batch: int, stop: StopSignal
    ) -> None:
        super().__init__(learner, stop)
        self._mesh = mesh
        share, full = mesh.share, data.count_rows(rows.whole) // batch * batch
        split = rows.whole.take(full).shard(share.parts, share.part).batch(batch // share.parts)
        self._kinds = ((split, mesh.pack_rows, BATCH), (rows.whole.skip(full).batch(batch), mesh.pack_whole, WHOLE))
        self._steps = {
            rows_by: tf.function(
                on_values(variables, partial(learner.noted_loss, training=False, rows_by=rows_by)), autograph=False
            )
            for rows_by in (BATCH, WHOLE)
        }

    def batches(self) -> Iterator[tuple[str, Any]]:
        """With what splits the rows of each."""
        for rows, pack, rows_by in self._kinds:
            for batch in rows.prefetch(tf.data.AUTOTUNE):
                yield rows_by, tf.nest.map_structure(pack, batch)

    def judge(self, batch: tuple[str, Any]) -> None:
        rows_by, packed = batch
        with dtensor.default_mesh(self._mesh.grid):
            self._steps[rows_by](packed)


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
