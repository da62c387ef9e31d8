"""Keras 3 behind the loop's face. The private names of Keras that the loop leans on are here, and are checked first."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from worker_agent.trainer.model.compiled_model import check_unscaled, once_each, own_parts, require
from worker_agent.trainer.model.learner import ReplicaLearner
from worker_agent.trainer.model.per_thread import PerThread, RowsHere
from worker_agent.trainer.model.reduce import all_reduce

MODEL_NAMES = (
    "_symbolic_build",
    "_compute_loss",
    "_compile_loss",
    "_loss_tracker",
    "_call_has_training_arg",
    "_flatten_layers",
)
_OPTIMIZER_NAMES = (
    "_all_reduce_sum_gradients",
    "_overwrite_model_variables_with_average_value",
    "ema_overwrite_frequency",
    "gradient_accumulation_steps",
)


class Keras3(ReplicaLearner):
    """Keras 3 reduces gradients after clipping, the finite test and accumulation; the loop reduces before them.

    Copying the moving average over the weights and accumulating steps use merge_call inside a cond, which the
    synchronous strategies refuse: the loop does both.
    """

    def __init__(self, model: Any, strategy: tf.distribute.Strategy) -> None:
        super().__init__(model, strategy)
        require(model, *MODEL_NAMES)
        require(self.optimizer, *_OPTIMIZER_NAMES)
        self._rows = RowsHere()
        inner = self.optimizer
        inner._all_reduce_sum_gradients = lambda grads_and_vars: list(grads_and_vars)
        self.parts = own_parts(model)
        self._average_every = inner.ema_overwrite_frequency if inner.use_ema else None
        inner.gradient_accumulation_steps = None
        inner.ema_overwrite_frequency = None
        if self.has_own_step:
            self._reduce_before_apply()
        if self.shares_variables:
            check_unscaled(model)

    def create_variables(self, element_spec: Any) -> None:
        def symbol(spec: tf.TensorSpec) -> Any:
            return keras.KerasTensor(spec.shape, keras.backend.standardize_dtype(spec.dtype))

        with self.strategy.scope():
            self.model._symbolic_build(data_batch=tf.nest.map_structure(symbol, element_spec))
            if not self.model.optimizer.built:
                self.model.optimizer.build(self.model.trainable_variables)
        for variable in [] if self.shares_variables else self.metric_variables:
            _assign_unread(variable.value)
        for tracker in getattr(self.model._compile_loss, "metrics", None) or []:
            _weigh_by_rows(tracker, self._rows)
        if self.replicas > 1:
            self._set_apart()
        if self.shares_variables:
            self._share()

    def forward(self, x: Any, *, training: bool) -> Any:
        return self.model(x, training=training) if self.model._call_has_training_arg else self.model(x)

    def loss(self, x: Any, y: Any, y_pred: Any, sample_weight: Any, rows: tf.Tensor, *, training: bool) -> tf.Tensor:
        self._rows.count = rows
        loss = self.model._compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=training)
        loss = loss * tf.cast(self.replicas, loss.dtype)  # undo Keras' division by the replicas
        # The last batches of a validation may leave a replica without rows, and the mean of nothing is NaN.
        self.model._loss_tracker.update_state(_or_zero(loss, rows), sample_weight=rows)
        return loss

    def scaled(self, loss: tf.Tensor) -> tf.Tensor:
        return self.model.optimizer.scale_loss(loss)

    def note(self, x: Any, y: Any, y_pred: Any, sample_weight: Any) -> None:
        self.model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)

    def apply(self, gradients: list[Any]) -> None:
        self.model.optimizer.apply(gradients, self.model.trainable_variables)

    def average_weights(self) -> None:
        if not self._average_every:
            return
        optimizer = self.optimizer
        tf.cond(
            tf.cast(optimizer.iterations, tf.int64) % self._average_every == 0,
            lambda: optimizer._overwrite_model_variables_with_average_value(self.model.trainable_variables),
            lambda: None,
        )

    @property
    def moving_state(self) -> list[tf.Variable]:
        """Keras 3 declares no aggregation for them, so each replica keeps its own."""
        if self.shares_variables:
            return []
        return [variable.value for variable in self.model.non_trainable_variables if "float" in variable.dtype]

    @property
    def state(self) -> list[tf.Variable]:
        listed = [*self.model.variables, *self.metric_variables, *self.model.optimizer.variables]
        return once_each(each.value for each in listed)

    @contextmanager
    def metrics_as_sums(self) -> Iterator[None]:
        shared = once_each(each.value for each in self.metric_variables) if self.shares_variables else []
        for variable in shared:
            variable.assign(variable.numpy() * self.replicas)
        try:
            yield
        finally:
            for variable in shared:
                variable.assign(variable.numpy() / self.replicas)

    def results(self) -> Mapping[str, Any]:
        with self.metrics_as_sums():
            return super().results()

    def _reduce_before_apply(self) -> None:
        """A train_step of the recipe's own calls apply or apply_gradients; both end here."""
        apply = self.model.optimizer.apply

        def reduced(gradients: Any, trainable_variables: Any = None) -> Any:
            return apply(all_reduce(gradients), trainable_variables)

        self.model.optimizer.apply = reduced

    def _set_apart(self) -> None:
        """What the replicas of one process would share, and mix up: they are traced in threads that take turns."""
        for layer in self.model._flatten_layers():
            layer.__dict__.update(_losses=PerThread(list), _loss_ids=PerThread(set))
        for generator in self._seed_generators():
            _draw_apart(generator)

    def _seed_generators(self) -> list[Any]:
        layers = self.model._flatten_layers()
        return once_each(each for layer in layers for each in getattr(layer, "_seed_generators", []))

    def _share(self) -> None:
        """Central storage: all replicas write one variable, so what Keras assigns has to be aggregated.

        Keras 3 assigns `total + mine` to a metric, which summed over the replicas would count the old total once for
        each of them. Its mean over the replicas is right but for a factor, which `metrics_as_sums` puts back.
        """
        for variable in [*self.metric_variables, *self.model.non_trainable_variables]:
            variable.value._aggregation = tf.VariableAggregation.MEAN
        alike = [*self.model.optimizer.variables, *(each.state for each in self._seed_generators())]
        for variable in alike:  # every replica assigns the same
            variable.value._aggregation = tf.VariableAggregation.ONLY_FIRST_REPLICA


def _assign_unread(variable: tf.Variable) -> None:
    """Keras asks for nothing that an assignment returns; of a metric that several replicas have, that would be an
    all-reduce for each variable, at each reset."""
    variable.assign = partial(variable.assign, read_value=False)


def _draw_apart(generator: Any) -> None:
    """Replicas share a dropout seed's state; each adds its number to the first word of what it draws.

    So the state is the same everywhere, and a checkpoint of it fits any number of replicas.
    """
    draw = generator.next

    def drawn(*given: Any, **named: Any) -> Any:
        seed = draw(*given, **named)
        context = tf.distribute.get_replica_context()
        replica = 0 if context is None else context.replica_id_in_sync_group  # none outside of replicas
        return seed + tf.cast(tf.stack([replica, 0]), seed.dtype)

    generator.next = drawn


def _weigh_by_rows(tracker: Any, rows: RowsHere) -> None:
    """Keras weighs the loss of one output by the batch's static size, or not at all where that is unknown."""
    update = tracker.update_state

    def weighed(value: Any, sample_weight: Any = None) -> Any:
        if rows.count is None:
            return update(value, sample_weight=sample_weight)
        return update(_or_zero(value, rows.count), sample_weight=rows.count)

    tracker.update_state = weighed


def _or_zero(loss: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    return tf.where(rows > 0, loss, tf.zeros_like(loss))
