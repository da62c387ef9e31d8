"""The input of a gang: every row once per epoch over all workers, however the rows are divided, without a hang."""

import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import tensorflow as tf

from tests.agent.plans import make_spec
from worker_agent.trainer.outcome import TrainingFailed
from worker_agent.trainer.recipe import data
from worker_agent.trainer.recipe.division import Policy, divide, file_count
from worker_agent.trainer.recipe.recipe_file import Recipe
from worker_agent.trainer.recipe.run_size import size_of

pytestmark = pytest.mark.tf


class Pipeline:
    """One worker's place in a gang, where `training_input` asks a strategy."""

    def __init__(self, pipelines: int, pipeline: int, replicas: int = 1) -> None:
        self._context = tf.distribute.InputContext(pipelines, pipeline, pipelines * replicas)

    def distribute_datasets_from_function(self, make: Callable[[Any], Any]) -> Any:
        return make(self._context)


def rows_of(build: Callable[..., Any]) -> data.Rows:
    module = ModuleType("recipe")
    module.build_model = lambda params: None
    module.build_dataset = build
    return data.Rows(Recipe(module, {}), "train")


def numbered(count: int) -> data.Rows:
    return rows_of(lambda params, split: tf.data.Dataset.range(count))


def epochs_of(
    rows: data.Rows,
    *,
    workers: int,
    batch: int,
    count: int,
    sharding: str,
    epochs: int = 2,
    start_step: int = 0,
) -> list[list[list[Any]]]:
    """What each worker reads: `[worker][step]` = rows of its batch."""
    spec = make_spec(global_batch_size=batch, epochs=epochs)
    size = size_of(spec, rows=count, replicas=workers)
    steps = size.total_steps - start_step
    read = []
    for worker in range(workers):
        dataset = data.training_input(
            Pipeline(workers, worker), rows, size, seed=7, start_step=start_step, sharding=sharding
        )
        read.append([batch.tolist() for batch in dataset.take(steps).as_numpy_iterator()])
    return read


def written(folder: Path, *rows_each: int) -> list[str]:
    """Files of lines `FILE-ROW`."""
    paths = []
    for number, rows in enumerate(rows_each):
        path = folder / f"{number}.txt"
        path.write_text("".join(f"{number}-{row}\n" for row in range(rows)))
        paths.append(str(path))
    return paths


def files(folder: Path, *rows_each: int) -> data.Rows:
    paths = written(folder, *rows_each)
    return rows_of(lambda params, split: tf.data.Dataset.from_tensor_slices(paths).flat_map(tf.data.TextLineDataset))


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_each_row_is_read_once_an_epoch(workers: int) -> None:
    read = epochs_of(numbered(48), workers=workers, batch=12, count=48, sharding="data")
    for epoch in (0, 1):
        seen = Counter(row for worker in read for step in worker[epoch * 4 : epoch * 4 + 4] for row in step)
        assert seen == Counter(range(48))


def test_the_gangs_batch_is_that_of_one_process() -> None:
    alone = epochs_of(numbered(50), workers=1, batch=12, count=50, sharding="data")[0]
    gang = epochs_of(numbered(50), workers=3, batch=12, count=50, sharding="data")
    assert [sorted(step) for step in alone] == [sorted(itertools.chain(*parts)) for parts in zip(*gang, strict=True)]


def test_an_uneven_tail_neither_hangs_nor_doubles() -> None:
    read = epochs_of(numbered(53), workers=3, batch=12, count=53, sharding="data")
    seen = Counter(row for worker in read for step in worker[:4] for row in step)
    assert seen.total() == 48
    assert max(seen.values()) == 1
    assert [len(worker) for worker in read] == [8, 8, 8]


def test_a_training_goes_on_where_it_was() -> None:
    whole = epochs_of(numbered(48), workers=2, batch=12, count=48, sharding="data")
    rest = epochs_of(numbered(48), workers=2, batch=12, count=48, sharding="data", start_step=5)
    assert rest == [worker[5:] for worker in whole]


def test_files_are_dealt_out(tmp_path: Path) -> None:
    rows = files(tmp_path, 6, 6, 6, 6)
    division = rows.division("auto", pipelines=2)
    assert (division.policy, division.files) == (Policy.FILE, 4)
    read = epochs_of(rows, workers=2, batch=4, count=24, sharding="auto")
    seen = Counter(row.decode() for worker in read for step in worker[:6] for row in step)
    assert seen == Counter(f"{number}-{row}" for number in range(4) for row in range(6))
    assert {row.decode()[0] for step in read[0] for row in step} == {"0", "2"}


READERS: dict[str, tuple[Callable[[list[str]], tf.data.Dataset], int]] = {
    "lines": (tf.data.TextLineDataset, 4),
    "lines of one": (lambda names: tf.data.TextLineDataset(names[0]), 1),
    "lines of a dataset": (lambda names: tf.data.TextLineDataset(tf.data.Dataset.from_tensor_slices(names)), 4),
    "lines in parallel": (lambda names: tf.data.TextLineDataset(names, num_parallel_reads=2), 4),
    "lines, mapped": (lambda names: tf.data.TextLineDataset(names).map(tf.strings.length).batch(2), 4),
    "fixed length": (lambda names: tf.data.FixedLengthRecordDataset(names, 4), 4),
    "fixed length in parallel": (lambda names: tf.data.FixedLengthRecordDataset(names, 4, num_parallel_reads=2), 4),
    "records": (tf.data.TFRecordDataset, 4),
    "records in parallel": (lambda names: tf.data.TFRecordDataset(names, num_parallel_reads=2), 4),
    "interleaved": (lambda names: tf.data.Dataset.from_tensor_slices(names).interleave(tf.data.TextLineDataset), 4),
    "one after another": (lambda names: tf.data.Dataset.list_files(names).flat_map(tf.data.TextLineDataset), 4),
    "CSV, which TensorFlow does not deal out": (lambda names: tf.data.experimental.CsvDataset(names, [tf.string]), 0),
}


@pytest.mark.parametrize("reader", READERS)
def test_the_files_of_every_reader_are_counted(reader: str, tmp_path: Path) -> None:
    read, count = READERS[reader]
    assert file_count(read(written(tmp_path, 1, 1, 1, 1))) == count


@pytest.mark.parametrize("asked", ["auto", "file"])
@pytest.mark.parametrize("reader", ["lines", "lines in parallel", "fixed length"])
def test_a_reader_of_a_list_of_files_is_dealt_out(reader: str, asked: str, tmp_path: Path) -> None:
    read, _ = READERS[reader]
    rows = rows_of(lambda params, split: read(written(tmp_path, 6, 6, 6, 6)))
    assert rows.division(asked, pipelines=2).policy is Policy.FILE
    seen = Counter(
        row.decode().strip()
        for worker in epochs_of(rows, workers=2, batch=4, count=24, sharding=asked, epochs=1)
        for step in worker
        for row in step
    )
    assert seen == Counter(f"{number}-{row}" for number in range(4) for row in range(6))


def test_a_shard_with_fewer_rows_sets_the_measure(tmp_path: Path) -> None:
    rows = files(tmp_path, 9, 4)
    counts = [
        data.count_rows(rows.for_pipeline(rows.division("file", pipelines=2), pipelines=2, pipeline=i)) for i in (0, 1)
    ]
    assert counts == [9, 4]
    read = epochs_of(rows, workers=2, batch=4, count=2 * min(counts), sharding="file")
    seen = Counter(row.decode() for worker in read for step in worker[:2] for row in step)
    assert seen.total() == 8
    assert max(seen.values()) == 1


@pytest.mark.parametrize(("split", "called"), [("train", "training"), ("validation", "validation")])
def test_rows_without_end_are_refused_by_the_name_of_their_set(split: str, called: str) -> None:
    program = rows_of(lambda params, split, shard=(1, 0): tf.data.Dataset.range(4).repeat())._program
    rows = data.Rows(program, split)
    for ask in (lambda: rows.whole, lambda: rows.for_shard(2, 1)):
        with pytest.raises(TrainingFailed, match=f"^The {called} set never ends: let build_dataset"):
            ask()


def test_shared_rows_are_known_without_a_gang_too() -> None:
    rows = numbered(10)
    strategy = tf.distribute.OneDeviceStrategy("/device:CPU:0")
    assert data.shared_rows(strategy, rows, rows.division("auto", pipelines=1), pipelines=1) == 10


def test_a_recipe_that_shards_is_asked_for_its_part_alone() -> None:
    asked = []

    def build(params: Any, split: str, shard: tuple[int, int] = (1, 0)) -> Any:
        asked.append(shard)
        return tf.data.Dataset.range(40).shard(*shard)

    rows = rows_of(build)
    division = rows.division("auto", pipelines=2)
    assert division.policy is Policy.RECIPE
    assert sorted(rows.for_pipeline(division, pipelines=2, pipeline=1).as_numpy_iterator()) == list(range(1, 40, 2))
    assert asked == [(2, 1)]


def test_without_sharding_each_worker_has_an_order_of_its_own() -> None:
    first, second = epochs_of(numbered(40), workers=2, batch=10, count=40, sharding="off")
    assert first != second
    assert len({row for step in first for row in step}) > 20


@pytest.mark.parametrize(
    ("asked", "count", "policy", "word"),
    [
        ("auto", 0, Policy.DATA, "not come from files"),
        ("auto", 3, Policy.DATA, "3 files do not divide by 2 workers"),
        ("auto", 4, Policy.FILE, "2 for each of 2 workers"),
        ("file", 3, Policy.FILE, "some get one more"),
        ("data", 4, Policy.DATA, "As asked"),
        ("off", 4, Policy.OFF, "As asked"),
    ],
)
def test_a_division_says_its_reason(asked: str, count: int, policy: Policy, word: str) -> None:
    division = divide(asked, pipelines=2, takes_shard=False, files=lambda: count)
    assert division.policy is policy
    assert word in division.reason


@pytest.mark.parametrize(("count", "word"), [(0, "reads no files"), (1, "reads 1 file:")])
def test_sharding_by_file_needs_files(count: int, word: str) -> None:
    with pytest.raises(TrainingFailed, match=word):
        divide("file", pipelines=2, takes_shard=False, files=lambda: count)


def test_texts_are_no_files() -> None:
    assert file_count(tf.data.Dataset.from_tensor_slices(["a", "b"])) == 0
    assert (
        file_count(tf.data.Dataset.from_generator(lambda: iter(()), output_signature=tf.TensorSpec((), tf.int64))) == 0
    )
