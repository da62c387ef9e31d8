"""What a training tells, and that the catalogue learns: real processes, forked by a zygote."""

import json
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.trainer.gang import RECIPES, Gang, Zygote, gang
from worker_agent.protocol.states import Cause, Strategy

pytestmark = pytest.mark.tf

TINY = Path(__file__).parents[1] / "recipes/tiny.py"
LEAD = "worker:0"


def trained(zygote: Zygote, folder: Path, strategy: Strategy, **given: object) -> Gang:
    folder.mkdir()
    return gang(folder, TINY, strategy, seed=3, **given).start(zygote)  # type: ignore[arg-type]


def test_one_worker_speaks_for_the_job_and_each_tells_its_speed(tmp_path: Path, keras3: Zygote) -> None:
    # The plan's scaled rate: 0.04 × 2 replicas.
    settings = {"warmup_epochs": 2, "learning_rate": 0.04, "scaled_rate": 0.08, "epochs": 3, "exports": True}
    job = trained(keras3, tmp_path / "multi", Strategy.MULTI_WORKER_MIRRORED, workers=2, **settings)
    job.wait(180)
    assert [member.exit().cause for member in job.members] == [Cause.COMPLETED] * 2
    lead, second = job.members
    assert list(lead.series("loss")) == list(range(1, 16))
    assert lead.series("learning_rate") == pytest.approx({5: 0.06, 10: 0.08, 15: 0.08})
    assert second.series("loss") == {}
    assert second.series("step_time_ms").keys() == lead.series("step_time_ms").keys()
    assert not list(Path(second.plan.artifacts).iterdir())


@pytest.mark.parametrize(
    ("strategy", "shape"), [(Strategy.MULTI_WORKER_MIRRORED, {"workers": 2}), (Strategy.PARAMETER_SERVER, {"ps": 1})]
)
def test_a_training_ends_after_its_steps_also_amid_an_epoch(
    strategy: Strategy, shape: dict[str, int], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    zygote = request.getfixturevalue("tf_keras" if strategy is Strategy.PARAMETER_SERVER else "keras3")
    job = trained(zygote, tmp_path / "short", strategy, epochs=9, max_steps=7, **shape)
    lead = job.members[0]
    job.wait(180, names=[lead.name])
    job.stop()
    assert list(lead.series("loss")) == list(range(1, 8))
    assert [summary.epoch for summary in lead.summaries()] == [1, 2]  # of five steps each
    assert "val_accuracy" in lead.summaries()[-1].metrics
    last = lead.progress()[-1]
    assert (last.step, last.total_steps, last.epoch, last.epochs) == (7, 7, 2, 2)


def test_digits_over_two_workers_reach_95_percent(tmp_path: Path, keras3: Zygote) -> None:
    recipe = RECIPES / "digits_cnn.py"
    digits = gang(tmp_path, recipe, Strategy.MULTI_WORKER_MIRRORED, workers=2, epochs=8, exports=True)
    digits.start(keras3).wait(180)
    lead = digits[LEAD]
    assert lead.phases()[:4] == ["importing", "rendezvous", "building", "training"]
    assert lead.phases()[-2:] == ["saving", "done"]
    assert [summary.epoch for summary in lead.summaries()] == list(range(1, 9))
    assert lead.summaries()[-1].metrics["val_accuracy"] >= 0.95
    last = lead.progress()[-1]
    assert (last.step, last.total_steps, last.epoch, last.epochs) == (176, 176, 8, 8)
    assert lead.log().count("epoch ") == 8
    described = json.loads((Path(lead.plan.artifacts) / "metrics.json").read_text())
    assert described["metrics"]["val_accuracy"] == pytest.approx(lead.summaries()[-1].metrics["val_accuracy"])
    with ZipFile(Path(lead.plan.artifacts) / "model.keras") as model:
        assert "config.json" in model.namelist()


@pytest.mark.parametrize("recipe", ["breast_cancer", "char_lm"])
def test_catalogue_recipes_learn(recipe: str, tmp_path: Path, keras3: Zygote) -> None:
    params = {"characters": 12000, "channels": 32} if recipe == "char_lm" else {}
    job = gang(tmp_path, RECIPES / f"{recipe}.py", Strategy.ONE_DEVICE, epochs=4, params=params)
    job.start(keras3).wait(180)
    losses = [summary.metrics["val_loss"] for summary in job[LEAD].summaries()]
    assert losses[-1] < 0.85 * losses[0]


def test_callbacks_of_a_recipe_stop_the_whole_gang_early(tmp_path: Path, keras3: Zygote) -> None:
    job = gang(tmp_path, TINY, Strategy.MULTI_WORKER_MIRRORED, workers=2, epochs=50, params={"patience": 2})
    job.start(keras3).wait(180)
    assert [member.exit().code for member in job.members] == [0, 0]
    assert [summary.epoch for summary in job[LEAD].summaries()] == [1, 2, 3]
