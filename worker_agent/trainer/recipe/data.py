"""From a recipe's finite, unbatched dataset to the endless, sharded, batched input of a strategy.

Every worker derives the same global order from (seed, epoch), so the union of the workers' j-th batches is the j-th
batch that a single process would see, whatever the number of workers. The input is endless on purpose: on a finite
one MultiWorkerMirrored adds an all-reduce to every step ("has anybody data?").
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import tensorflow as tf

from worker_agent.protocol.job.choices import Sharding
from worker_agent.trainer.outcome import TrainingFailed
from worker_agent.trainer.recipe.division import Division, Policy, divide, file_count, files_of
from worker_agent.trainer.recipe.recipe_file import Recipe
from worker_agent.trainer.recipe.run_size import Size

SHUFFLE_ROWS_MAX = 10_000
SHUFFLE_BYTES = 128 * 1024 * 1024
# Not 0: TensorFlow compares a graph seed of 0 with the tensor that `seed + epoch` is, and fails.
_ORDER_SEED = 1
# Between the seeds of workers that each have an order of their own: more than any training has epochs.
_SEEDS_APART = 1_000_003
_SETS = {"train": "training"}  # by split, where the set is called otherwise


class Rows:
    """The rows of one split. A recipe is asked for the whole set once, however often it is needed."""

    def __init__(self, program: Recipe, split: str) -> None:
        self._program = program
        self._split = split

    @cached_property
    def exist(self) -> bool:
        """False where the recipe has no such split (validation is optional)."""
        return self._made is not None

    @cached_property
    def whole(self) -> tf.data.Dataset:
        """Every row; raises `TrainingFailed` when the recipe returned something else, or rows without end."""
        return checked(self._made, self._split)

    def division(self, asked: Sharding, *, pipelines: int) -> Division:
        """How these rows are divided; `asked` is the job's `sharding`."""
        return divide(
            asked,
            pipelines=pipelines,
            takes_shard=self._program.takes_shard,
            files=lambda: file_count(self.whole),
        )

    def for_pipeline(self, division: Division, *, pipelines: int, pipeline: int) -> tf.data.Dataset:
        """What one pipeline reads: its own rows alone, or all of them where it keeps its share afterwards."""
        match division.policy:
            case Policy.RECIPE:
                return self.for_shard(pipelines, pipeline)
            case Policy.FILE:
                return files_of(self.whole, pipelines=pipelines, pipeline=pipeline)
            case _:
                return self.whole

    def for_shard(self, shards: int, shard: int) -> tf.data.Dataset:
        """The rows of one shard, given by the recipe itself where it can."""
        if shards == 1 or not self._program.takes_shard:
            return self.whole.shard(shards, shard)
        rows = checked(self._program.dataset(self._split, (shards, shard)), self._split)
        if int(rows.cardinality().numpy()) == 0:
            raise TrainingFailed(
                f'build_dataset(params, "{self._split}") has no rows for shard {shard} of {shards}',
                remedy="let each shard have some",
            )
        return rows

    @cached_property
    def _made(self) -> Any:
        return self._program.dataset(self._split, (1, 0))


@dataclass(frozen=True)
class Share:
    """Which part of the rows this process reads: stands where `training_input` asks a strategy, and has it read a plain
    dataset, which starts sooner and costs less a step than one that brings each batch to several devices."""

    parts: int
    part: int

    def distribute_datasets_from_function(self, make: Callable[[Any], tf.data.Dataset]) -> tf.data.Dataset:
        """The dataset of this part: local, not distributed."""
        return make(
            tf.distribute.InputContext(
                num_input_pipelines=self.parts, input_pipeline_id=self.part, num_replicas_in_sync=self.parts
            )
        )


def count_rows(dataset: tf.data.Dataset) -> int:
    """The number of rows of a dataset that ends; one that does not know is read through once."""
    rows = int(dataset.cardinality().numpy())
    if rows == tf.data.UNKNOWN_CARDINALITY:
        rows = int(dataset.reduce(tf.constant(0, tf.int64), lambda count, _: count + 1).numpy())
    return rows


def checked(dataset: Any, split: str) -> tf.data.Dataset:
    """`dataset` if it is one, and has an end as far as it knows; raises `TrainingFailed`."""
    if not isinstance(dataset, tf.data.Dataset):
        raise TrainingFailed(
            f'build_dataset(params, "{split}") returned {type(dataset).__name__}, not a tf.data.Dataset.'
        )
    if int(dataset.cardinality().numpy()) == tf.data.INFINITE_CARDINALITY:
        raise TrainingFailed(
            f"The {_SETS.get(split, split)} set never ends",
            remedy="let build_dataset() return each row once, without repeat()",
        )
    return dataset


def check_judged(rows: Rows) -> None:
    """Raise `TrainingFailed` where these validation rows, meant for an evaluator, do not exist."""
    if not rows.exist:
        raise TrainingFailed("The recipe has no validation rows for an evaluator", remedy="set validation to gang")


def shared_rows(strategy: tf.distribute.Strategy, rows: Rows, division: Division, *, pipelines: int) -> int:
    """The rows that an epoch can use. A collective where each pipeline knows its own rows only: the one that has
    fewest sets the measure, so that nobody sees a row twice in an epoch; what others have beyond it waits for a later
    epoch's order."""
    if not division.reads_apart:
        return count_rows(rows.whole)
    replicas = strategy.num_replicas_in_sync // pipelines
    first = strategy.experimental_local_results(
        strategy.experimental_distribute_values_from_function(lambda context: context.replica_id_in_sync_group)
    )[0]
    pipeline = int(first) // replicas
    own = count_rows(rows.for_pipeline(division, pipelines=pipelines, pipeline=pipeline))

    counts = strategy.reduce(
        tf.distribute.ReduceOp.SUM,
        strategy.experimental_distribute_values_from_function(
            lambda _: tf.one_hot(pipeline, pipelines, dtype=tf.float64) * (own / replicas)
        ),
        axis=None,
    )
    return round(float(tf.reduce_min(counts))) * pipelines


def training_input(
    strategy: tf.distribute.Strategy | Share,
    rows: Rows,
    size: Size,
    *,
    seed: int,
    start_step: int = 0,
    sharding: Sharding = Sharding.DATA,
) -> Any:
    """The endless dataset, distributed where a strategy reads it, positioned on `start_step`."""

    def per_worker(context: tf.distribute.InputContext) -> tf.data.Dataset:
        pipelines, pipeline = context.num_input_pipelines, context.input_pipeline_id
        division = rows.division(sharding, pipelines=pipelines)
        endless = ordered_batches(
            rows.for_pipeline(division, pipelines=pipelines, pipeline=pipeline),
            size,
            seed=seed + pipeline * _SEEDS_APART if division.policy is Policy.OFF else seed,
            start_step=start_step,
            replicas=context.num_replicas_in_sync // pipelines,
            shard=(pipelines, pipeline) if pipelines > 1 and division.policy is Policy.DATA else None,
            batch=size.batch // context.num_replicas_in_sync,
        ).prefetch(tf.data.AUTOTUNE)
        return endless.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))

    return strategy.distribute_datasets_from_function(per_worker)


def ordered_batches(
    rows: tf.data.Dataset,
    size: Size,
    *,
    seed: int,
    start_step: Any,
    batch: int,
    replicas: int = 1,
    shard: tuple[int, int] | None = None,
) -> tf.data.Dataset:
    """Epoch after epoch without end, from `start_step` on: batches of `batch` rows, one for each of `replicas` a step,
    of all rows or of `shard` (n, i) of each epoch's order."""
    first, skip = start_step // size.steps_per_epoch, start_step % size.steps_per_epoch
    window = shuffle_rows(rows.element_spec, size.rows)

    @tf.autograph.experimental.do_not_convert
    def one_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
        tf.random.set_seed(_ORDER_SEED)  # of this graph alone: the order depends on (seed, epoch) and nothing else
        order = rows.shuffle(window, seed=seed + epoch, reshuffle_each_iteration=False)
        mine = order.shard(*shard) if shard else order
        done = tf.where(epoch == first, tf.cast(skip * replicas, tf.int64), 0)
        # Exactly steps_per_epoch steps for everybody: nobody runs dry and leaves the others in a collective.
        return mine.batch(batch, drop_remainder=True).take(size.steps_per_epoch * replicas).skip(done)

    return tf.data.Dataset.range(first, tf.int64.max).flat_map(one_epoch)


def validation_input(strategy: tf.distribute.Strategy, rows: Rows, *, workers: int, worker: int, batch: int) -> Any:
    """Every row once over all workers. One local replica reads a plain dataset, several a distributed one."""
    replicas = strategy.num_replicas_in_sync // workers
    mine = rows.for_shard(workers, worker)
    local = mine.batch(max(1, batch // (workers * replicas))).prefetch(tf.data.AUTOTUNE)
    if replicas == 1:
        return local
    return strategy.distribute_datasets_from_function(lambda _: local)


def shuffle_rows(element_spec: Any, rows: int) -> int:
    """How many rows a shuffle may hold in memory: all of a small set, a window of a large one."""
    row_bytes = sum(
        spec.dtype.size * (spec.shape.num_elements() or 1)
        for spec in tf.nest.flatten(element_spec)
        if isinstance(spec, tf.TensorSpec)
    )
    return max(1, min(rows, SHUFFLE_ROWS_MAX, SHUFFLE_BYTES // max(1, row_bytes)))
