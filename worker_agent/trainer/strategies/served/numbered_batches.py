"""Input of parameter-server workers: the coordinator deals out batches by their number, so each record is seen exactly
once per epoch by the whole gang, whatever pace its workers have.

Every worker reads all rows (also of a recipe that could give it a share), makes the same numbered batches of them, in
an order that derives from (seed, epoch) alone, and passes over those that others were given. Numbers only grow, because
calls are handed out in the order of scheduling. The exception is asynchrony's own: a call whose worker was lost is
given to another worker, which may have passed its batches already; that worker then takes the ones it has come to. A
resumed training begins at the step's number, a worker that comes back later at one that nobody will be dealt before.
"""

from typing import Any

import tensorflow as tf

from worker_agent.trainer.recipe import data
from worker_agent.trainer.recipe.division import Division, Policy
from worker_agent.trainer.recipe.recipe_file import Recipe
from worker_agent.trainer.recipe.run_size import Size

DIVISION = Division(
    policy=Policy.DATA,
    reason="The chief assigns batches by number, to any free worker: each row is used once per epoch.",
)


def counter(strategy: tf.distribute.Strategy, start: int = 0) -> Any:
    """A number that lies on a parameter server, for all to read and to add to."""
    with strategy.scope():
        return tf.Variable(
            start, dtype=tf.int64, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA
        )


def training_batches(recipe: Recipe, size: Size, *, seed: int, start_step: tf.Tensor) -> tf.data.Dataset:
    """(number, batch) without end, from number `start_step`; batch n is that of step n, from 0."""
    options = tf.data.Options()
    options.deterministic = True  # whatever the recipe prefers: a number has to mean the same batch everywhere
    rows = recipe.dataset("train", (1, 0)).with_options(options)
    endless = data.ordered_batches(rows, size, seed=seed, start_step=start_step, batch=size.batch)
    return endless.enumerate(start_step).prefetch(tf.data.AUTOTUNE)


def validation_batches(recipe: Recipe, *, batch: int, start: tf.Tensor) -> tf.data.Dataset:
    """(number, batch) of the validation rows in their own order, again and again; `start` is the first's number."""
    rows = recipe.dataset("validation", (1, 0)).batch(batch)
    return rows.repeat().enumerate(start).prefetch(tf.data.AUTOTUNE)


def batch_from(number: tf.Tensor, iterator: Any) -> Any:
    """In the graph: (number, batch) of that number or, where the iterator has passed it, of the next."""
    return tf.while_loop(
        lambda found, _: found < number, lambda *_: next(iterator), next(iterator), parallel_iterations=1
    )
