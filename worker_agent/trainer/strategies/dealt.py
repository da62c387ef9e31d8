"""Input of parameter-server workers: the coordinator deals out batches by their number, so each record is seen exactly
once per epoch by the whole gang, whatever pace its workers have.

Every worker reads all rows (also of a recipe that could give it a share), makes the same numbered batches of them, in
an order that derives from (seed, epoch) alone, and passes over those that others were given. Numbers only grow, because
executions are handed out in the order of scheduling. The exception is asynchrony's own: an execution whose worker was
lost is given to another worker, which may have passed its batches already; that worker then takes the ones it has come
to. A resumed training begins at the step's number.
"""

from typing import Any

import tensorflow as tf

from worker_agent.trainer import data
from worker_agent.trainer.program import Program
from worker_agent.trainer.size import Size

DIVISION = {
    "policy": "data",
    "reason": "The chief deals out batches by number: whichever worker is free, each row is seen once an epoch.",
    "files": 0,
}
# Not 0, for the reason given in `data.py`.
_ORDER_SEED = 1


def training_batches(recipe: Program, size: Size, *, seed: int, start_step: int) -> tf.data.Dataset:
    """(number, batch) without end, from number `start_step`; batch n is that of step n, from 0."""
    options = tf.data.Options()
    options.deterministic = True  # whatever the recipe prefers: a number has to mean the same batch everywhere
    rows = recipe.dataset("train", (1, 0)).with_options(options)
    first, skip = divmod(start_step, size.steps_per_epoch)

    @tf.autograph.experimental.do_not_convert
    def one_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
        tf.random.set_seed(_ORDER_SEED)  # of this graph alone
        window = data.shuffle_rows(rows.element_spec, size.rows)
        order = rows.shuffle(window, seed=seed + epoch, reshuffle_each_iteration=False)
        done = tf.where(epoch == first, tf.constant(skip, tf.int64), 0)
        return order.batch(size.batch, drop_remainder=True).take(size.steps_per_epoch).skip(done)

    endless = tf.data.Dataset.range(first, tf.int64.max).flat_map(one_epoch)
    return endless.enumerate(start_step).prefetch(tf.data.AUTOTUNE)


def validation_batches(recipe: Program, *, batch: int) -> tf.data.Dataset:
    """(number, batch) of the validation rows, each once, in their own order."""
    return recipe.dataset("validation", (1, 0)).batch(batch).enumerate().prefetch(tf.data.AUTOTUNE)


def take(iterator: Any, number: tf.Tensor) -> Any:
    """In the graph: the batch of that number."""
    _, batch = tf.while_loop(
        lambda found, _: found < number, lambda *_: next(iterator), next(iterator), parallel_iterations=1
    )
    return batch
