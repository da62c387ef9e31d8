"""The model of a parameter-server training: its variables on the servers, and what the coordinator does with them as a
whole: initial values, learning rate, checkpoints, export."""

from typing import Any

import tensorflow as tf

from worker_agent.protocol.checkpoint import Variable
from worker_agent.trainer.loop.rate import rate_of
from worker_agent.trainer.recipe.recipe_file import Recipe
from worker_agent.trainer.recipe.run_size import Size
from worker_agent.trainer.saving.gang_checkpoints import Checkpoints, Variables
from worker_agent.trainer.strategies import legacy_model
from worker_agent.trainer.strategies.served.variable_load import load_of_servers, name_of, partitioned
from worker_agent.trainer.training_run import TrainingRun

# Facts are short: a model of many layers does not name them all.
NAMED_MAX = 50


class ServedModel:
    """`applied` counts the updates of all workers; `rate` is the learning rate they take."""

    def __init__(
        self,
        run: TrainingRun,
        strategy: tf.distribute.ParameterServerStrategy,
        recipe: Recipe,
        rows: tf.data.Dataset,
        size: Size,
    ) -> None:
        self._servers = run.spec.ps
        with strategy.scope():
            self.model = legacy_model.build(recipe, rows, seed=run.spec.seed)
            self.applied = tf.Variable(
                0, dtype=tf.int64, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA
            )
        self.model.optimizer.jit_compile = False  # XLA cannot update variables of other processes
        self._state = legacy_model.state_variables(self.model)
        self._unpartitioned: Any = None
        if partitioned(self._state):
            self._take_whole_initial_values(recipe, rows, seed=run.spec.seed)
        replicas = strategy.num_replicas_in_sync
        with strategy.scope():
            self.rate = rate_of(run, self.model.optimizer, size, replicas=replicas)

    def resume(self, checkpoints: Checkpoints, size: Size) -> None:
        """Take up the checkpoint that the run begins with, if any, and be what is saved from now on."""
        checkpoints.attach(RemoteVariables([*self._state, self.applied]), size=size, rate=self.rate.aim)
        checkpoints.restore()
        if checkpoints.has_other_rate:
            self.rate.take()

    def facts(self) -> dict[str, Any]:
        """How the variables lie on the servers."""
        return {
            "parameters_total": sum(variable.shape.num_elements() for variable in self.model.trainable_variables),
            "ps_load": load_of_servers([*self._state, self.applied], servers=self._servers),
            "partitioned": partitioned(legacy_model.weights(self.model))[:NAMED_MAX],
        }

    def to_export(self) -> Any:
        """The trained model as one that is saved like any other: without partitions."""
        if self._unpartitioned is None:
            return self.model
        legacy_model.copy_state(self._state, legacy_model.state_variables(self._unpartitioned))
        return self._unpartitioned

    def _take_whole_initial_values(self, recipe: Recipe, rows: tf.data.Dataset, *, seed: int) -> None:
        """An initializer asked for a part scales by the part's shape, so a partitioned model would begin with other,
        larger values than the same model on one server: take those of the latter."""
        self._unpartitioned = legacy_model.build(recipe, rows, seed=seed)
        legacy_model.copy_state(legacy_model.state_variables(self._unpartitioned), self._state)


class RemoteVariables(Variables):
    """Variables of other processes, written to and read from this process's disk: left to itself, TensorFlow has
    every process write its own variables to its own."""

    @property
    def variables(self) -> list[Variable]:
        """Name, shape and type of each; a partitioned one is what it would be in one piece."""
        return [
            Variable(name=name_of(each), shape=list(each.shape), dtype=tf.as_dtype(each.dtype).name)
            for each in self.listed
        ]

    def write(self, prefix: str) -> None:
        """All values."""
        self._checkpoint().write(prefix, options=_here())

    def read(self, prefix: str) -> None:
        """All values; raises when one is missing."""
        self._checkpoint().read(prefix, options=_here()).assert_existing_objects_matched()


def _here() -> tf.train.CheckpointOptions:
    return tf.train.CheckpointOptions(experimental_io_device="/job:chief/task:0/device:CPU:0")
