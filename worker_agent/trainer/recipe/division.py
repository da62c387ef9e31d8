"""How the rows of the training set are divided over the input pipelines of a gang (one per worker process), and why.

`recipe`: `build_dataset(…, shard=(n, i))` gives each pipeline its own rows, and reads no others. `file`: the files that
the dataset reads are dealt out, so each is read by one pipeline (TensorFlow's AutoShardPolicy.FILE,
tensorflow/python/data/ops/options.py). `data`: every pipeline reads all rows and keeps each n-th. `off`: every pipeline
trains on all rows, in an order of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import tensorflow as tf
from tensorflow.python.data.experimental.ops.distribute import _AutoShardDataset

from worker_agent.protocol.job.choices import Sharding
from worker_agent.trainer.outcome import TrainingFailed


class Policy(StrEnum):
    """Who reads which rows."""

    RECIPE = "recipe"
    FILE = "file"
    DATA = "data"
    OFF = "off"


@dataclass(frozen=True, kw_only=True)
class Division:
    """`reason` is a sentence for people; `files` is 0 where the dataset reads none that could be counted."""

    policy: Policy
    reason: str
    files: int = 0

    @property
    def facts(self) -> dict[str, Any]:
        """As replicas tell it."""
        return {"policy": self.policy, "reason": self.reason, "files": self.files}

    @property
    def reads_apart(self) -> bool:
        """True where a pipeline reads only what it trains on; nobody then knows the rows of the others."""
        return self.policy in (Policy.RECIPE, Policy.FILE)


def divide(asked: Sharding, *, pipelines: int, takes_shard: bool, files: Callable[[], int]) -> Division:
    """The division for what was asked.

    `files` counts the files behind the dataset, 0 for none; it is called where the answer depends on it. Raises
    `TrainingFailed` where what was asked for cannot be.
    """
    if pipelines == 1:
        return Division(policy=Policy.DATA, reason="One process reads all rows.")
    if asked == Sharding.OFF:
        return Division(policy=Policy.OFF, reason="As asked: every worker draws from all rows, in an order of its own.")
    if asked == Sharding.DATA:
        return Division(policy=Policy.DATA, reason="As asked: every worker reads all rows and keeps its share.")
    if asked == Sharding.AUTO and takes_shard:
        return Division(policy=Policy.RECIPE, reason="The recipe gives each worker its own rows (shard).")
    count = files()
    if asked == Sharding.FILE:
        return _by_file(count, pipelines)
    if count and count % pipelines == 0:
        each = count // pipelines
        reason = f"{count} files divide evenly: {each} for each of {pipelines} workers, read by nobody else."
        return Division(policy=Policy.FILE, reason=reason, files=count)
    why = f"{count} files do not divide by {pipelines} workers" if count else "The rows do not come from files"
    return Division(policy=Policy.DATA, reason=f"{why}: every worker reads all rows and keeps its share.", files=count)


def _by_file(count: int, pipelines: int) -> Division:
    if count < pipelines:
        held = f"reads {count} file{'' if count == 1 else 's'}" if count else "reads no files that can be divided"
        raise TrainingFailed(
            f"Sharding by file needs a file for each of the {pipelines} workers, and the training set {held}",
            remedy="choose sharding data, or write more files",
        )
    uneven = "" if count % pipelines == 0 else "; some get one more, and its rows beyond the others' count wait"
    reason = f"As asked: {count} files divided among {pipelines} workers{uneven}."
    return Division(policy=Policy.FILE, reason=reason, files=count)


def file_count(dataset: tf.data.Dataset) -> int:
    """How many files `dataset` reads, 0 where it reads none or TensorFlow could not deal them out."""
    counts = [count for leaf in _leaves(dataset) if (count := _files_of(leaf))]
    if not counts:
        return 0
    try:
        files_of(dataset, pipelines=2, pipeline=0)
    except tf.errors.NotFoundError:  # texts, but not the names of files
        return 0
    return min(counts)


def files_of(dataset: tf.data.Dataset, *, pipelines: int, pipeline: int) -> tf.data.Dataset:
    """The rows of the files number `pipeline`, `pipeline + pipelines`, … of those that `dataset` reads."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.FILE
    # Private, and what every distribution of a dataset calls; no public name shards for one pipeline alone.
    return _AutoShardDataset(dataset.with_options(options), pipelines, pipeline)


def _leaves(dataset: Any) -> list[Any]:
    inputs = dataset._inputs()
    return [leaf for parent in inputs for leaf in _leaves(parent)] if inputs else [dataset]


def _files_of(leaf: Any) -> int:
    """A leaf is a reader that holds its file names, or the list of texts that a reader gets its names from."""
    names = getattr(leaf, "_filenames", leaf)  # of readers of lines and fixed lengths, a dataset; of CSV, a tensor
    if not isinstance(names, tf.data.Dataset):
        return int(tf.size(names))
    spec = names.element_spec
    is_text = isinstance(spec, tf.TensorSpec) and spec.dtype == tf.string and spec.shape.rank == 0
    return max(0, int(names.cardinality().numpy())) if is_text else 0
