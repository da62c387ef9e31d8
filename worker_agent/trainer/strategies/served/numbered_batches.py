"""Input of parameter-server workers: the coordinator deals out batches by their number, so each record is seen exactly
once per epoch by the whole gang, whatever pace its workers have.

Every worker reads all rows (also of a recipe that could give it a share), makes the same numbered batches of them, in
an order that derives from (seed, epoch) alone, and passes over those that others were given. Numbers only grow, because
calls are handed out in the order of scheduling. The exception is asynchrony's own: a call whose worker was lost is
given to another worker, which may have passed its batches already; that worker then takes the ones it has come to. A
resumed training begins at the step's number, a worker that comes back later at `NextBatch`.
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
MOVED_EVERY_S = 5.0


class NextBatch:
    """The number from which on batches may still be dealt out, for workers that join the training. It lies on a
    parameter server and is moved now and then, so that a worker that comes back has little to pass over."""

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

    def move(self, done: int) -> None:
        """So many steps are done, and all before them."""
        if self._clock() - self._moved_at >= MOVED_EVERY_S:
            self._step.assign(done)
            self._moved_at = self._clock()


def training_batches(recipe: Recipe, size: Size, *, seed: int, start_step: tf.Tensor) -> tf.data.Dataset:
    """(number, batch) without end, from number `start_step`; batch n is that of step n, from 0."""
    options = tf.data.Options()
    options.deterministic = True  # whatever the recipe prefers: a number has to mean the same batch everywhere
    rows = recipe.dataset("train", (1, 0)).with_options(options)
    endless = data.ordered_batches(rows, size, seed=seed, start_step=start_step, batch=size.batch)
    return endless.enumerate(start_step).prefetch(tf.data.AUTOTUNE)


def validation_batches(recipe: Recipe, *, batch: int) -> tf.data.Dataset:
    """(number, batch) of the validation rows, each once, in their own order."""
    return recipe.dataset("validation", (1, 0)).batch(batch).enumerate().prefetch(tf.data.AUTOTUNE)


def batch_number(number: tf.Tensor, iterator: Any) -> Any:
    """In the graph: the batch of that number."""
    _, batch = tf.while_loop(
        lambda found, _: found < number, lambda *_: next(iterator), next(iterator), parallel_iterations=1
    )
    return batch
