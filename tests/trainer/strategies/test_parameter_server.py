"""Parameter servers: a gang whose order of updates is fixed computes the same however its variables and devices are
spread; one whose workers run free applies each update once and learns as well. Real processes, forked by a zygote."""

import json
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from tests.trainer import launches
from tests.trainer.gang import Gang, Zygote, gang
from tests.trainer.launches import CHIEF, SCRIPTS
from worker_agent.protocol.records import Checkpointed, Points
from worker_agent.protocol.states import Cause, Strategy

pytestmark = pytest.mark.tf

HERE = Path(__file__).parents[1]
TINY, COUNTED, PLANTED = (HERE / "recipes" / name for name in ("tiny.py", "counted.py", "planted.py"))
EVALUATOR = "evaluator:0"
# 5 steps an epoch.
SPEC = {"epochs": 3, "seed": 3, "checkpoint_steps": 4, "checkpoints_kept": 9}
LOSS_TOLERANCE = 1e-6
# How much less accurate than one device a gang of workers that do not wait for each other may be.
ACCURACY_MARGIN = 0.05


def served(zygote: Zygote, folder: Path, recipe: Path = TINY, **given: object) -> Gang:
    """A gang that has trained to its end."""
    folder.mkdir()
    job = gang(folder, recipe, Strategy.PARAMETER_SERVER, exports=True, **given).start(zygote)  # type: ignore[arg-type]
    ending = [name for name in job.by_name if name in (CHIEF, EVALUATOR)]
    job.wait(180, names=ending)
    job.stop()
    job.wait(20)
    for name in ending:
        assert job[name].exit().cause is Cause.COMPLETED, job[name].log()[-3000:]
    assert {member.exit().cause for member in job.members if member.name not in ending} == {Cause.STOPPED}
    return job


def applied(job: Gang) -> int:
    """The count of updates that lies on a parameter server."""
    steps: int = json.loads((Path(job[CHIEF].plan.artifacts) / "metrics.json").read_text())["steps"]
    return steps


@pytest.fixture(scope="module")
def plain(tf_keras: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Gang:
    """One worker, one server: its updates follow one another."""
    folder = tmp_path_factory.mktemp("plain")
    return served(tf_keras, folder / "gang", workers=1, ps=1, checkpoints=folder / "checkpoints", **SPEC)


@pytest.fixture(scope="module")
def spread(tf_keras: Zygote, tmp_path_factory: pytest.TempPathFactory) -> tuple[Gang, Path]:
    """The same with two devices in the worker, variables in parts on two servers, three steps a call, an evaluator."""
    folder = tmp_path_factory.mktemp("spread")
    given = {"ps": 2, "devices": 2, "min_shard_bytes": 64, "steps_per_execution": 3, "validation": "evaluator"}
    job = served(tf_keras, folder / "gang", workers=1, checkpoints=folder / "checkpoints", **SPEC, **given)
    return job, folder / "checkpoints"


def test_partitions_devices_and_calls_change_no_number(plain: Gang, spread: tuple[Gang, Path]) -> None:
    other, _ = spread
    losses, found = plain[CHIEF].series("loss"), other[CHIEF].series("loss")
    assert list(losses) == list(found) == list(range(1, 16))
    assert max(abs(losses[step] - found[step]) for step in losses) <= LOSS_TOLERANCE
    assert losses[15] < 0.5 * losses[1]
    assert applied(plain) == applied(other) == 15
    for one, two in zip(plain[CHIEF].summaries(), other[CHIEF].summaries(), strict=True):
        assert two.metrics == pytest.approx({k: v for k, v in one.metrics.items() if "val_" not in k}, abs=1e-6)


def test_an_evaluator_judges_every_checkpoint(plain: Gang, spread: tuple[Gang, Path]) -> None:
    other, _ = spread
    judge = other[EVALUATOR]
    steps = [each.step for each in other[CHIEF].records(Checkpointed)]
    assert steps == [4, 8, 12, 15]
    assert judge.phases() == ["importing", "building", "evaluating", "done"]
    assert list(judge.series("val_loss")) == steps
    assert [each.epoch for each in judge.summaries()] == [0, 1, 2, 3]
    truth = {k: v for k, v in plain[CHIEF].summaries()[-1].metrics.items() if "val_" in k}
    assert judge.summaries()[-1].metrics == pytest.approx(truth, abs=1e-6)


def test_each_process_tells_what_it_is(spread: tuple[Gang, Path]) -> None:
    job, _ = spread
    chief, worker, server = job[CHIEF].facts(), job["worker:0"].facts(), job["ps:1"].facts()
    assert chief["keras"] == worker["keras"]
    assert str(chief["keras"]).startswith("tf_keras 2.")
    assert (chief["replicas_in_sync"], chief["devices"], worker["devices"]) == (2, [], ["CPU:0", "CPU:1"])
    assert chief["sharding"]["policy"] == "data"
    assert chief["partitioned"] == [
        {"variable": "dense/kernel", "parts": 2},
        {"variable": "dense_1/kernel", "parts": 2},
    ]
    loads = chief["ps_load"]
    assert [load["ps"] for load in loads] == [0, 1]
    # Weights and momenta of 195 parameters; four metrics' numbers, the rate, and two counts of 8 bytes.
    assert sum(load["bytes"] for load in loads) == 2 * 4 * chief["parameters_total"] + 5 * 4 + 2 * 8
    assert chief["steps_of_workers"] == [15]
    assert all(int(each["memory_bytes"]) > 100e6 for each in (chief, worker, server))


def test_a_checkpoint_goes_on_under_other_servers_and_workers(
    tf_keras: Zygote, plain: Gang, spread: tuple[Gang, Path], tmp_path: Path
) -> None:
    _, checkpoints = spread
    restore = checkpoints / "step-0000000008-a1"
    alone = served(tf_keras, tmp_path / "1", workers=1, ps=1, restore=restore, attempt=2, **SPEC)
    two = served(tf_keras, tmp_path / "2", workers=2, ps=2, restore=restore, attempt=2, **SPEC)
    losses = plain[CHIEF].series("loss")
    found = alone[CHIEF].series("loss")
    assert list(found) == list(range(9, 16))
    assert max(abs(losses[step] - found[step]) for step in found) <= LOSS_TOLERANCE
    assert alone[CHIEF].summaries()[-1].metrics == pytest.approx(plain[CHIEF].summaries()[-1].metrics, abs=1e-6)
    assert alone[CHIEF].facts()["resumed"] == {"checkpoint": restore.name, "step": 8, "job": 1}
    # The first batch dealt out is the ninth; if the other worker is faster, its weights are a step further already.
    assert list(two[CHIEF].series("loss")) == list(range(9, 16))
    assert abs(two[CHIEF].series("loss")[9] - losses[9]) < 0.5 * (losses[1] - losses[9])
    assert applied(alone) == applied(two) == 15
    assert sum(two[CHIEF].facts()["steps_of_workers"]) == 7


def test_free_workers_see_each_row_once_an_epoch_and_stop_when_a_callback_says_so(
    tf_keras: Zygote, tmp_path: Path
) -> None:
    given = {"workers": 2, "ps": 2, "devices": 2, "min_shard_bytes": 8, "global_batch_size": 8, "epochs": 9}
    chief = (job := served(tf_keras, tmp_path / "gang", COUNTED, **given))[CHIEF]
    assert [(each.metrics["fewest"], each.metrics["most"]) for each in chief.summaries()] == [(1, 1), (1, 1)]
    assert applied(job) == 2 * 24
    assert list(chief.series("loss")) == list(range(1, 49))
    assert chief.series("batches") == {1: 24, 2: 48}
    assert min(chief.facts()["steps_of_workers"]) > 0
    worst = chief.series("staleness_max")
    assert worst
    assert all(worst[step] >= mean >= 0 for step, mean in chief.series("staleness").items())


def test_free_workers_learn_as_well_as_one_device(tf_keras: Zygote, keras3: Zygote, tmp_path: Path) -> None:
    # 1000 steps, far longer than a window.
    spec = {"epochs": 1, "global_batch_size": 16, "params": {"rows": 16000}}
    one = gang(tmp_path / "one", TINY, Strategy.ONE_DEVICE, **spec).start(keras3)
    job = served(tf_keras, tmp_path / "gang", workers=2, ps=1, **spec)
    one.wait(180)
    chief = job[CHIEF]
    truth = one["worker:0"].summaries()[-1].metrics["val_accuracy"]
    assert truth >= 0.9
    assert chief.summaries()[-1].metrics["val_accuracy"] >= truth - ACCURACY_MARGIN
    assert list(chief.series("loss")) == list(range(1, 1001))
    assert applied(job) == 1000
    assert json.loads((Path(chief.plan.artifacts) / "metrics.json").read_text())["keras"] == "tf_keras"
    assert job["ps:0"].phases()[-1] == "serving"
    assert 1000 in chief.series("accuracy")
    assert len(chief.series("accuracy")) > 1
    assert chief.series("step_time_ms/worker 0")
    assert chief.series("step_time_ms/worker 1")


def test_the_speed_told_is_steps_over_wall_clock_also_with_short_epochs(tf_keras: Zygote, tmp_path: Path) -> None:
    """30 epochs of 32 steps that take 10 ms each and more: between two epochs lie a few milliseconds."""
    given = {"epochs": 30, "global_batch_size": 16, "params": {"lag_ms": 10, "seconds": 0.4801}}
    chief = served(tf_keras, tmp_path / "gang", PLANTED, workers=2, ps=1, **given)[CHIEF]
    ends = {
        step: at
        for points in chief.records(Points)
        if "loss" in points.names
        for step, at in zip(points.steps, points.times, strict=True)
    }
    assert len(ends) == 30 * 32
    told = chief.series("examples_per_s")
    ratios = [told[now] * (ends[now] - ends[last]) / (16 * (now - last)) for last, now in pairwise(told)]
    assert 0.9 < median(ratios) < 1.15
    assert min(ends[now] - ends[last] for last, now in pairwise(told)) > 0.4, "no epoch of 0.2 s tells by itself"


@pytest.mark.parametrize("kind", ["generator-py_function", *SCRIPTS])
def test_data_from_python_make_no_gang_stand_still(kind: str, tf_keras: Zygote, tmp_path: Path) -> None:
    """The chief makes them, while it makes and forgets functions and iterators on workers that wait for rows."""
    chief = launches.trained(tmp_path / "gang", kind, tf_keras)[CHIEF]
    if kind in SCRIPTS:
        assert "updates 60\n" in chief.log()
    else:
        assert list(chief.series("loss")) == list(range(1, 61))
        assert len({each.metrics["val_loss"] for each in chief.summaries()}) == 5
