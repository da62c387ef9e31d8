"""A recipe's compiled model made ready to be trained.

The course of a training speaks to a `Learner` only. What differs between the two flavours of Keras, and every private
name of theirs that the loop leans on, stands in `keras3.py` and `tf_keras.py`; `learners.py` chooses.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import keras
import tensorflow as tf

from worker_agent.trainer.model.compiled_model import has_own_step


class Learner:
    """The model with its optimizer. `optimizer` is the one behind any loss scaling."""

    saves_together = False  # True where saving the model is a collective, which each worker of a gang calls

    def __init__(self, model: Any) -> None:
        self.model = model
        self.optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)

    def results(self) -> Mapping[str, Any]:
        """Loss and compiled metrics since they were reset, as Keras gives them."""
        results: Mapping[str, Any] = self.model.get_metrics_result()
        return results

    def metrics_now(self) -> dict[str, float]:
        """Loss and compiled metrics over all replicas and workers since they were reset, nested ones flattened.

        A collective: each worker of a gang calls it.
        """
        flat: dict[str, float] = {}
        for name, value in self.results().items():
            parts = value if isinstance(value, dict) else {name: value}
            flat.update({key: float(part) for key, part in parts.items()})
        return flat

    def average_state(self) -> None:
        """Before the model is judged or saved: average what each replica has moved for itself. A collective."""

    def finish(self) -> None:
        """The last step was taken."""

    def whole_model(self, *, keep: bool) -> Any:
        """The trained model as one that is saved like any other; the last thing that is asked for. A collective, whose
        result counts where it is to `keep`."""
        return self.model


class ReplicaLearner(Learner, ABC):
    """A model of which replicas in a `strategy` take steps together. Its gradients come in already reduced over them.

    `parts` is the number of steps which the recipe's optimizer accumulates by itself: the loop does that instead of it,
    so clipping and loss scaling see the whole.
    """

    parts: int = 1

    def __init__(self, model: Any, strategy: tf.distribute.Strategy) -> None:
        super().__init__(model)
        self.strategy = strategy
        self.replicas = strategy.num_replicas_in_sync
        self.has_own_step = has_own_step(model)
        self.has_own_test = type(model).test_step is not keras.Model.test_step
        self.shares_variables = isinstance(strategy, tf.distribute.experimental.CentralStorageStrategy)
        self._average = tf.function(lambda: strategy.run(self._average_moving_state), autograph=False)

    @abstractmethod
    def create_variables(self, element_spec: Any) -> None:
        """Weights, metrics and optimizer slots before the first step, from the shapes of one replica's batch."""

    @abstractmethod
    def forward(self, x: Any, *, training: bool) -> Any:
        """The model's outputs; `training` only where its `call` knows the word."""

    @abstractmethod
    def loss(self, x: Any, y: Any, y_pred: Any, sample_weight: Any, rows: tf.Tensor, *, training: bool) -> tf.Tensor:
        """The mean loss over this replica's `rows`, noted in the model's loss metrics."""

    @abstractmethod
    def scaled(self, loss: tf.Tensor) -> tf.Tensor:
        """The loss as the loss scaling wants to see it under the tape."""

    @abstractmethod
    def note(self, x: Any, y: Any, y_pred: Any, sample_weight: Any) -> None:
        """Update the compiled metrics, in a replica."""

    @abstractmethod
    def apply(self, gradients: list[Any]) -> None:
        """Take a step, in a replica; `gradients` are reduced, and scaled where the loss was."""

    def average_weights(self) -> None:
        """In the graph, after each step, across replicas: the moving average over the weights, when it is due."""

    def judge(self, batch: Any) -> None:
        """Bring a batch of validation rows into loss and metrics, in a replica."""
        if self.has_own_test:
            self.model.test_step(batch)
            return
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
        rows = tf.shape(tf.nest.flatten(x)[0])[0]
        y_pred = self.forward(x, training=False)
        self.loss(x, y, y_pred, sample_weight, rows, training=False)
        self.note(x, y, y_pred, sample_weight)

    def average_state(self) -> None:
        if self.replicas > 1 and self.moving_state:
            self._average()

    def finish(self) -> None:
        """Where the optimizer keeps a moving average of the weights, they become it."""
        if getattr(self.optimizer, "use_ema", False):
            with self.strategy.scope():
                self.optimizer.finalize_variable_values(self.model.trainable_variables)

    @property
    def trainable(self) -> list[Any]:
        """The weights that gradients are taken of."""
        return list(self.model.trainable_variables)

    @property
    def moving_state(self) -> list[tf.Variable]:
        """What each replica moves for itself and has to be averaged: BatchNormalization's statistics."""
        return []

    @property
    def metric_variables(self) -> list[Any]:
        """The variables of loss and compiled metrics, as Keras has them."""
        return [each for metric in self.model.metrics for each in metric.variables]

    @property
    @abstractmethod
    def state(self) -> list[tf.Variable]:
        """Everything that training changes, in a fixed order: weights, statistics, dropout seeds, metrics, and the
        optimizer's slots, counters and rate. `tf.train.Checkpoint(model=…)` would leave out seeds."""

    def metrics_as_sums(self) -> AbstractContextManager[None]:
        """Within this, the metrics' variables hold sums over the replicas, as checkpoints have them."""
        return nullcontext()

    def own_loss(self) -> Any | None:
        """The metric in which a `train_step` of the recipe's own keeps its mean loss, if it keeps one."""
        found = [metric for metric in self.model.metrics if metric.name == "loss"]
        return next((metric for metric in found if hasattr(metric, "total") and hasattr(metric, "count")), None)

    def _average_moving_state(self) -> None:
        values = [tf.identity(value) for value in self.moving_state]
        reduced = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, values)
        for variable, value in zip(self.moving_state, reduced, strict=True):
            variable.assign(value)
