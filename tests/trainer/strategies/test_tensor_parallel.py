"""Tensor parallel: the same steps as one device, and no process that holds all parameters. Real processes."""

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tests.trainer.gang import RECIPES, Gang, Member, Zygote, gang
from worker_agent.protocol.records import Checkpointed
from worker_agent.protocol.states import Cause, Strategy
from worker_agent.trainer.saving.state import Variables
from worker_agent.trainer.strategies.tensor import stored

pytestmark = pytest.mark.tf

WIDE, EQUAL = (Path(__file__).parents[1] / "recipes" / name for name in ("wide.py", "equal.py"))
SMALL = {"characters": 5000, "length": 16, "width": 16, "blocks": 1}
MIB = 1024**2


def started(zygote: Zygote, folder: Path, recipe: Path, strategy: Strategy, **given: Any) -> Gang:
    folder.mkdir()
    return gang(folder, recipe, strategy, **given).start(zygote)


def completed(job: Gang) -> Member:
    job.wait(300)
    assert [member.exit().cause for member in job.members] == [Cause.COMPLETED] * len(job.members), job.members[0].log()
    return job.members[0]


def test_a_transformer_is_split_over_processes_and_learns_the_same(tmp_path: Path, keras3: Zygote) -> None:
    given = {"params": SMALL, "epochs": 1, "global_batch_size": 24, "seed": 3}
    recipe = RECIPES / "transformer_lm.py"
    one = started(keras3, tmp_path / "one", recipe, Strategy.ONE_DEVICE, **given)
    split = {"workers": 2, "model_parallel": 2, "exports": True}
    two = started(keras3, tmp_path / "two", recipe, Strategy.TENSOR_PARALLEL, **split, **given)
    truth, lead = completed(one), completed(two)
    losses, found = truth.series("loss"), lead.series("loss")
    assert len(losses) > 20
    assert found.keys() == losses.keys()
    assert max(abs(found[step] - losses[step]) for step in losses) <= 1e-6
    assert lead.summaries()[-1].metrics == pytest.approx(truth.summaries()[-1].metrics, abs=5e-6)
    assert (Path(lead.plan.artifacts) / "model.keras").exists()
    for member in two.members:
        told = member.facts()
        assert told["mesh"] == {"batch": 1, "model": 2}
        assert told["communication"] == "DTensor, over gRPC"
        assert told["sharding"]["policy"] == "data"
        assert told["parameters_total"] == truth.facts()["parameters"]
        assert told["parameters"] < 0.52 * told["parameters_total"]
        table = {row["variable"]: row for row in told["layouts"]}
        assert table["attention_0/query/kernel"]["layout"] == ["unsharded", "model", "unsharded"]
        assert table["wide_0/kernel"]["layout"] == ["unsharded", "model"]
        assert table["narrow_0/kernel"]["layout"] == ["model", "unsharded"]
        assert table["narrow_0/kernel"]["bytes_here"] == 64 * 16 * 4 // 2
        assert sum(row["bytes_here"] for row in told["layouts"]) == 4 * told["parameters"]


def test_memory_is_shared_out_by_declared_layouts(tmp_path: Path, keras3: Zygote) -> None:
    given = {"epochs": 1, "global_batch_size": 32, "workers": 2}
    used = {}
    for name, parts in (("whole", 1), ("split", 2)):
        job = started(keras3, tmp_path / name, WIDE, Strategy.TENSOR_PARALLEL, model_parallel=parts, **given)
        completed(job)
        told = [member.facts() for member in job.members]
        used[name] = [each["memory_bytes"] for each in told]
        assert all(each["layouts"][0]["layout"][0] == ("model" if parts == 2 else "unsharded") for each in told)
    # 12 × 1536² numbers with Adam's two slots are 324 MiB: half of them is what each process does without.
    for whole, split in zip(used["whole"], used["split"], strict=True):
        assert whole - split > 130 * MIB, used


def test_a_checkpoint_is_taken_up_by_the_mesh_by_another_one_and_by_one_device(tmp_path: Path, keras3: Zygote) -> None:
    given = {"epochs": 2, "global_batch_size": 24, "seed": 3, "checkpoint_steps": 7, "params": {"case": "adamw"}}
    split = {"workers": 2, "model_parallel": 2}
    place = tmp_path / "checkpoints"
    whole = started(keras3, tmp_path / "whole", EQUAL, Strategy.TENSOR_PARALLEL, checkpoints=place, **split, **given)
    losses = completed(whole).series("loss")
    assert [each.step for each in whole.members[0].records(Checkpointed)] == [7, 14, 20]
    assert whole.members[1].records(Checkpointed) == []
    restore = place / "step-0000000007-a1"
    assert not [path for path in restore.iterdir() if path.is_dir()]
    jobs = [
        started(keras3, tmp_path / str(number), EQUAL, strategy, restore=restore, **{**given, **sizes})
        for number, (strategy, sizes) in enumerate(
            [
                (Strategy.TENSOR_PARALLEL, split),
                (Strategy.TENSOR_PARALLEL, {"devices": 2}),
                (Strategy.ONE_DEVICE, {}),
            ]
        )
    ]
    for job in jobs:
        found = completed(job).series("loss")
        assert list(found) == list(range(8, 21))
        assert max(abs(found[step] - losses[step]) for step in found) <= 1e-6
        assert job.members[-1].facts()["resumed"]["step"] == 7
        assert job.members[0].summaries()[-1].metrics == pytest.approx(
            whole.members[0].summaries()[-1].metrics, abs=5e-6
        )


def test_a_state_of_many_groups_is_one_checkpoint_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "GROUP_BYTES", 20)
    listed = [tf.Variable(tf.fill([number], float(number))) for number in range(1, 7)]
    stored.MeshState(listed, leads=False).write(str(tmp_path / "state"))
    assert list(tmp_path.iterdir()) == []
    stored.MeshState(listed, leads=True).write(str(tmp_path / "state"))
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [
        *[f".data-0000{i}-of-00005" for i in range(5)],
        ".index",
    ]
    for reader in (Variables, lambda fresh: stored.MeshState(fresh, leads=False)):
        fresh = [tf.Variable(tf.zeros_like(each)) for each in listed]
        reader(fresh).read(str(tmp_path / "state"))
        assert [each.numpy().tolist() for each in fresh] == [each.numpy().tolist() for each in listed]


def test_a_checkpoint_of_one_device_goes_on_split(tmp_path: Path, keras3: Zygote) -> None:
    given = {"epochs": 2, "global_batch_size": 24, "seed": 3, "params": {"case": "adam"}}
    place = tmp_path / "checkpoints"
    one = started(keras3, tmp_path / "one", EQUAL, Strategy.ONE_DEVICE, checkpoints=place, **given)
    losses = completed(one).series("loss")
    restore = place / "step-0000000010-a1"
    hybrid = {"workers": 2, "devices": 2, "model_parallel": 2}
    job = started(keras3, tmp_path / "hybrid", EQUAL, Strategy.TENSOR_PARALLEL, restore=restore, **hybrid, **given)
    found = completed(job).series("loss")
    assert list(found) == list(range(11, 21))
    assert max(abs(found[step] - losses[step]) for step in found) <= 1e-6


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"accumulation": 2}, "set `accumulation` to 1 and use a smaller batch"),
        ({"model_parallel": 3}, "3 does not divide the 2 devices of the gang"),
        ({"params": {"layouts": "wrong"}}, 'may hold "model" once'),
    ],
)
def test_what_it_does_not_do_is_one_sentence(
    given: dict[str, Any], sentence: str, tmp_path: Path, keras3: Zygote
) -> None:
    settings: dict[str, Any] = {"model_parallel": 2, "devices": 2, **given}
    job = started(keras3, tmp_path / "job", WIDE, Strategy.TENSOR_PARALLEL, **settings)
    job.wait(60)
    failure = job.members[0].failure()
    assert failure is not None
    assert sentence in failure.message
