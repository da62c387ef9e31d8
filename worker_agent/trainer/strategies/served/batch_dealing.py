"""Input of parameter-server workers: the coordinator deals out batches by their number, so each record is seen exactly
once per epoch by the whole gang, whatever pace its workers have.

Every worker reads all rows (also of a recipe that could give it a share), makes the same numbered batches of them, in
an order that derives from (seed, epoch) alone, and passes over those that others were given. Numbers only grow, because
executions are handed out in the order of scheduling. The exception is asynchrony's own: an execution whose worker was
lost is given to another worker, which may have passed its batches already; that worker then takes the ones it has come
to. A resumed training begins at the step's number, a worker that comes back later at the gang's `Place`.
"""

from collections.abc import Callable
from time import monotonic
from typing import Any

import tensorflow as tf

from worker_agent.trainer.recipe import data
from worker_agent.trainer.recipe.recipe_file import Recipe
from worker_agent.trainer.recipe.run_size import Size

DIVISION = {
    "policy": "data",
    "reason": "The chief deals out batches by number: whichever worker is free, each row is seen once an epoch.",
    "files": 0,
}
# Not 0, for the reason given in `data.py`.
_ORDER_SEED = 1
MOVED_EVERY_S = 5.0


class Place:
    """How far the training is, for workers that join it: no batch before it will be dealt again. It lies on a parameter
    server and is moved now and then, so that a worker that comes back has little to pass over."""

    def __init__(self, strategy: tf.distribute.Strategy, step: int, *, clock: Callable[[], float] = monotonic) -> None:
        with strategy.scope():
            self._step = tf.Variable(
                step, dtype=tf.int64, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA
            )
        self._clock = clock
        self._moved_at = clock()

    def read(self) -> tf.Tensor:
        """In a worker's graph: as it is then."""
        return self._step.read_value()

    def moved(self, done: int) -> None:
        """So many steps are done, and all before them."""
        if self._clock() - self._moved_at >= MOVED_EVERY_S:
            self._step.assign(done)
            self._moved_at = self._clock()


def training_batches(recipe: Recipe, size: Size, *, seed: int, start_step: tf.Tensor) -> tf.data.Dataset:
    """(number, batch) without end, from number `start_step`; batch n is that of step n, from 0."""
    options = tf.data.Options()
    options.deterministic = True  # whatever the recipe prefers: a number has to mean the same batch everywhere
    rows = recipe.dataset("train", (1, 0)).with_options(options)
    first, skip = start_step // size.steps_per_epoch, start_step % size.steps_per_epoch

    @tf.autograph.experimental.do_not_convert
    def one_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
        tf.random.set_seed(_ORDER_SEED)  # of this graph alone
        window = data.shuffle_rows(rows.element_spec, size.rows)
        order = rows.shuffle(window, seed=seed + epoch, reshuffle_each_iteration=False)
        done = tf.where(epoch == first, skip, 0)
        return order.batch(size.batch, drop_remainder=True).take(size.steps_per_epoch).skip(done)

    endless = tf.data.Dataset.range(first, tf.int64.max).flat_map(one_epoch)
    return endless.enumerate(start_step).prefetch(tf.data.AUTOTUNE)


def validation_batches(recipe: Recipe, *, batch: int) -> tf.data.Dataset:
    """(number, batch) of the validation rows, each once, in their own order."""
    return recipe.dataset("validation", (1, 0)).batch(batch).enumerate().prefetch(tf.data.AUTOTUNE)


def take(iterator: Any, number: tf.Tensor) -> Any:
    """In the graph: the batch of that number."""
    _, batch = tf.while_loop(
        lambda found, _: found < number, lambda *_: next(iterator), next(iterator), parallel_iterations=1
    )
    return batch
