"""A recipe's compiled tf_keras model, made ready: everything that training changes exists before the first step, and is
listed in one order by every process that writes or reads a checkpoint, however the variables are spread.

Used by the coordinator of parameter servers and by the evaluator beside it.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from worker_agent.trainer.loop.compiled_model import check_model
from worker_agent.trainer.recipe.recipe_file import Recipe
from worker_agent.trainer.setup import runtime


def build(recipe: Recipe, rows: tf.data.Dataset, *, seed: int) -> Any:
    """The recipe's model with weights, optimizer slots and metrics, from `seed`. `rows` are some of its input."""
    runtime.seed_everything(seed)
    model = check_model(recipe.model())
    model.build(tf.nest.map_structure(lambda spec: (None, *spec.shape), rows.element_spec[0]))
    model.optimizer.build(model.trainable_variables)
    for batch in rows.take(2).batch(2):  # metrics create their variables when they see data
        evaluate_batch(model, batch)
    model.reset_metrics()
    return model


def evaluate_batch(model: Any, batch: Any) -> None:
    """Bring loss and metrics of one batch into the model's metrics."""
    x, y, sample_weight = tf.keras.utils.unpack_x_y_sample_weight(batch)
    y_pred = forward(model, x, training=False)
    model.compute_loss(x, y, y_pred, sample_weight)
    note(model, x, y, y_pred, sample_weight)


def forward(model: Any, x: Any, *, training: bool) -> Any:
    """The model's outputs; `training` only where its `call` knows the word."""
    return model(x, training=training) if model._expects_training_arg else model(x)


def note(model: Any, x: Any, y: Any, y_pred: Any, sample_weight: Any) -> None:
    """Update the compiled metrics, without reading them unless the model's own way of computing metrics does."""
    if type(model).compute_metrics is tf.keras.Model.compute_metrics:
        model.compiled_metrics.update_state(y, y_pred, sample_weight)
    else:
        model.compute_metrics(x, y, y_pred, sample_weight)


def metrics_now(model: Any) -> dict[str, float]:
    """Loss and compiled metrics since they were reset."""
    return {name: float(value) for name, value in model.get_metrics_result().items()}


def weights(model: Any) -> list[Any]:
    """The model's variables; a partitioned one is listed as one."""
    return list({id(whole): whole for whole in map(_whole, model.weights)}.values())


def state_variables(model: Any) -> list[Any]:
    """Weights, metrics, and the optimizer's slots, counter and rate."""
    metrics = (variable for metric in model.metrics for variable in metric.variables)
    rate = getattr(model.optimizer, "_learning_rate", None)
    rates = [rate] if hasattr(rate, "assign") else []
    listed = [*weights(model), *map(_whole, metrics), *model.optimizer.variables(), *rates]
    return list({id(variable): variable for variable in listed}.values())


def copy_state(source: Sequence[Any], target: Sequence[Any]) -> None:
    """Give each variable of `target` the value of its counterpart, whichever of the two is partitioned."""
    for theirs, ours in zip(source, target, strict=True):
        ours.assign(tf.convert_to_tensor(theirs))


def _whole(variable: Any) -> Any:
    container = getattr(variable, "_sharded_container", None)
    return variable if container is None else container()
