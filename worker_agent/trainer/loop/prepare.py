"""A compiled Keras 3 model made ready for a strategy: all variables created, and the optimizer told that its gradients
come in already reduced. The private names of Keras 3.15 that the loop relies on are all here and in `step.py`."""

from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from worker_agent.trainer.outcome import TrainingFailed


@dataclass(frozen=True, kw_only=True)
class Taken:
    """The optimizer behind any loss scaling, and the duties the loop took over from it."""

    optimizer: Any
    average_every: int | None
    accumulate: int


def check_model(model: Any) -> Any:
    """`model` if it can be trained here; raises `TrainingFailed`."""
    if not isinstance(model, keras.Model):
        raise TrainingFailed(
            f"build_model() returned {type(model).__module__}.{type(model).__name__}, not a Keras model."
        )
    if getattr(model, "optimizer", None) is None or not model.compiled:
        raise TrainingFailed("build_model() returned a model that is not compiled: call model.compile(…) in it.")
    return model


def create_variables(model: Any, train_data: Any, strategy: tf.distribute.Strategy) -> None:
    """Weights, metrics and optimizer slots before the first step, from shapes alone."""

    def symbol(spec: Any) -> Any:
        one = spec if isinstance(spec, tf.TensorSpec) else spec._value_specs[0]
        return keras.KerasTensor(one.shape, keras.backend.standardize_dtype(one.dtype))

    batch = tf.nest.map_structure(symbol, train_data.element_spec)
    with strategy.scope():
        model._symbolic_build(data_batch=batch)
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)


def batches_per_step(optimizer: Any) -> int:
    """How many global batches one step consumes: the optimizer's own accumulation. Ask before `take_over`."""
    return getattr(optimizer, "inner_optimizer", optimizer).gradient_accumulation_steps or 1


def take_over(optimizer: Any) -> Taken:
    """Keras 3 reduces gradients after clipping, the finite test and accumulation; the loop reduces before them.

    Copying the moving average over the weights and accumulating steps use merge_call inside a cond, which the
    synchronous strategies refuse: the loop does both.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    inner._all_reduce_sum_gradients = lambda grads_and_vars: list(grads_and_vars)
    taken = Taken(
        optimizer=inner,
        average_every=inner.ema_overwrite_frequency if inner.use_ema else None,
        accumulate=batches_per_step(inner),
    )
    inner.ema_overwrite_frequency = None
    inner.gradient_accumulation_steps = None
    return taken


def state_variables(model: Any) -> list[Any]:
    """Everything that training changes, in a fixed order: weights, moving statistics, dropout seeds, metrics, and the
    optimizer's slots, counters and rate. `tf.train.Checkpoint(model=…)` would leave out the seeds."""
    listed = [*model.variables, *(each for metric in model.metrics for each in metric.variables)]
    values = [variable.value for variable in [*listed, *model.optimizer.variables]]
    return list({id(value): value for value in values}.values())


def seed_variables(model: Any) -> list[Any]:
    """The states of the model's random layers (dropout), which live outside what checkpoints see."""
    return [variable.value for variable in model.variables if variable.path.endswith("seed_generator_state")]


def decorrelate_seeds(model: Any, strategy: tf.distribute.Strategy) -> None:
    """Every replica starts with the same dropout seed; add the replica's number to its first word (0 for the first)."""
    seeds = seed_variables(model)
    if not seeds or strategy.num_replicas_in_sync == 1:
        return

    def shift() -> None:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        for seed in seeds:
            seed.assign(seed + tf.cast(tf.stack([replica, 0]), seed.dtype))

    tf.function(lambda: strategy.run(shift), autograph=False)()
