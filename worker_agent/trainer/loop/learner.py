"""A recipe's compiled model made ready for a synchronous strategy: one face for Keras 3 and tf_keras.

The loop speaks to a `Learner` only. What differs between the two flavours, and every private name of theirs that the
loop leans on, stands in `keras3.py` and `tf_keras.py`; `learners.py` chooses.
"""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import keras
import tensorflow as tf

from worker_agent.trainer.loop.compiled_model import has_own_step


class Learner(ABC):
    """The model with its optimizer, whose gradients come in already reduced over the replicas.

    `optimizer` is the one behind any loss scaling. `parts` is the number of steps which the recipe's optimizer
    accumulates by itself: the loop does that instead of it, so clipping and loss scaling see the whole.
    """

    model: Any
    optimizer: Any
    parts: int = 1
    saves_together = False  # True where saving the model is a collective, which each worker of a gang calls

    def __init__(self, model: Any, strategy: tf.distribute.Strategy) -> None:
        self.model = model
        self.strategy = strategy
        self.optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
        self.has_own_step = has_own_step(model)
        self.has_own_test = type(model).test_step is not keras.Model.test_step
        self.shares_variables = isinstance(strategy, tf.distribute.experimental.CentralStorageStrategy)

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

    @abstractmethod
    def average_weights(self) -> None:
        """In the graph, after each step, across replicas: the moving average over the weights, when it is due."""

    def finish(self) -> None:
        """After the last step: where the optimizer keeps a moving average of the weights, they become it."""
        if getattr(self.optimizer, "use_ema", False):
            with self.strategy.scope():
                self.optimizer.finalize_variable_values(self.model.trainable_variables)

    @property
    def trainable(self) -> list[Any]:
        """The weights that gradients are taken of."""
        return list(self.model.trainable_variables)

    @property
    @abstractmethod
    def moving_state(self) -> list[tf.Variable]:
        """What each replica moves for itself and has to be averaged: BatchNormalization's statistics."""

    @property
    @abstractmethod
    def state(self) -> list[tf.Variable]:
        """Everything that training changes, in a fixed order: weights, statistics, dropout seeds, metrics, and the
        optimizer's slots, counters and rate. `tf.train.Checkpoint(model=…)` would leave out seeds."""

    def metrics_as_sums(self) -> AbstractContextManager[None]:
        """Within this, the metrics' variables hold sums over the replicas, as checkpoints have them."""
        return nullcontext()

    def metrics_now(self) -> dict[str, float]:
        """Loss and compiled metrics over all replicas and workers since they were reset, nested ones flattened.

        A collective: each worker of a gang calls it.
        """
        flat: dict[str, float] = {}
        for name, value in self.model.get_metrics_result().items():
            parts = value if isinstance(value, dict) else {name: value}
            flat.update({key: float(part) for key, part in parts.items()})
        return flat

    def own_loss(self) -> Any | None:
        """The metric in which a `train_step` of the recipe's own keeps its mean loss, if it keeps one."""
        found = [metric for metric in self.model.metrics if metric.name == "loss"]
        return next((metric for metric in found if hasattr(metric, "total") and hasattr(metric, "count")), None)
