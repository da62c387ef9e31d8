"""Tensor parallel: the same steps as one device, and no process that holds all parameters. Real processes."""

from pathlib import Path
from typing import Any

import pytest

from tests.trainer.gang import RECIPES, Gang, Member, Zygote, gang
from worker_agent.protocol.records import Facts
from worker_agent.protocol.states import Cause, Strategy

pytestmark = pytest.mark.tf

WIDE = Path(__file__).parent / "recipes/wide.py"
SMALL = {"characters": 5000, "length": 16, "width": 16, "blocks": 1}
MIB = 1024**2


def started(zygote: Zygote, folder: Path, recipe: Path, strategy: Strategy, **given: Any) -> Gang:
    folder.mkdir()
    return gang(folder, recipe, strategy, **given).start(zygote)


def facts(member: Member) -> dict[str, Any]:
    return {name: value for record in member.of(Facts) for name, value in record.facts.items()}


def completed(job: Gang) -> Member:
    job.wait(300)
    assert [member.exit().cause for member in job.members] == [Cause.COMPLETED] * len(job.members), job.members[0].log()
    return job.members[0]


def test_a_transformer_is_split_over_processes_and_learns_the_same(tmp_path: Path, keras3: Zygote) -> None:
    given = {"params": SMALL, "epochs": 1, "global_batch_size": 24, "seed": 3}
    recipe = RECIPES / "transformer_lm.py"
    one = started(keras3, tmp_path / "one", recipe, Strategy.ONE_DEVICE, **given)
    two = started(keras3, tmp_path / "two", recipe, Strategy.TENSOR_PARALLEL, workers=2, model_parallel=2, **given)
    truth, lead = completed(one), completed(two)
    losses, found = truth.series("loss"), lead.series("loss")
    assert len(losses) > 20
    assert found.keys() == losses.keys()
    assert max(abs(found[step] - losses[step]) for step in losses) <= 1e-6
    assert lead.summaries()[-1].metrics == pytest.approx(truth.summaries()[-1].metrics, abs=5e-6)
    assert (Path(lead.plan.artifacts) / "model.keras").exists()
    for member in two.members:
        told = facts(member)
        assert told["mesh"] == {"batch": 1, "model": 2}
        assert told["parameters_total"] == facts(truth)["parameters"]
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
        told = [facts(member) for member in job.members]
        used[name] = [each["memory_bytes"] for each in told]
        assert all(each["layouts"][0]["layout"][0] == ("model" if parts == 2 else "unsharded") for each in told)
    # 12 × 1536² numbers with Adam's two slots are 324 MiB: half of them is what each process does without.
    for whole, split in zip(used["whole"], used["split"], strict=True):
        assert whole - split > 130 * MIB, used


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"resume_from": 1}, "Tensor parallel offers no checkpoints yet"),
        ({"accumulation": 2}, "no accumulation"),
        ({"model_parallel": 3}, "cannot be split over 3 devices"),
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
