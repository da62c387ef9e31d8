"""Pipeline: what is particular to stages on the devices of one process and of two.

That they take the steps of the unsplit model is a row of `test_equality.py`.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.gang import RECIPES, Gang, Member, Zygote, gang
from worker_agent.protocol.states import Cause, Strategy

pytestmark = pytest.mark.tf

STAGED = Path(__file__).parents[1] / "recipes/staged.py"
GIVEN = {"epochs": 2, "global_batch_size": 24, "seed": 3}
STEPS = 20


def started(folder: Path, zygote: Zygote, strategy: Strategy, **given: Any) -> Gang:
    folder.mkdir()
    return gang(folder, STAGED, strategy, **{**GIVEN, **given}).start(zygote)


def ended(job: Gang) -> Member:
    """The leading process, once it has ended well; those that serve it are stopped, as their agents stop them."""
    lead = job["worker:0"]
    job.wait(120, names=["worker:0"])
    job.stop()
    job.wait(30)
    assert lead.exit().cause is Cause.COMPLETED, lead.log()
    return lead


def test_four_stages_on_two_processes_tell_what_each_holds(tmp_path: Path, keras3: Zygote) -> None:
    job = started(tmp_path / "apart", keras3, Strategy.PIPELINE, workers=2, devices=2, micro_batches=4)
    told = ended(job).facts()
    assert [stage["layers"] for stage in told["stages"]] == ["first", "second", "third", "scores"]
    assert [stage["parameters"] for stage in told["stages"]] == [544, 1056, 1056, 132]
    assert told["parameters"] == 1600
    assert told["bubble"] == pytest.approx(3 / 7, abs=1e-3)
    serving = job["worker:1"].facts()
    assert (serving["parameters"], serving["parameters_total"]) == (1056 + 132, 544 + 2 * 1056 + 132)
    assert serving["memory_bytes"] > 0


def test_overlap_is_measured_on_steps_of_the_training(tmp_path: Path, keras3: Zygote) -> None:
    job = started(tmp_path / "job", keras3, Strategy.PIPELINE, devices=2, epochs=20, checkpoints_kept=0)
    lead = ended(job)
    (idle,) = lead.series("bubble").values()
    assert 0 <= idle < 1
    overlap = lead.facts()["overlap"]
    times, together, in_turn = map(float, re.findall(r"[\d.]+", overlap))
    assert overlap.startswith("none: slower than") == (in_turn < together)
    assert times == pytest.approx(in_turn / together, rel=0.05)
    assert idle == pytest.approx(max(0, 1 - in_turn / (2 * together)), abs=0.05)


def test_the_transformer_of_the_catalogue_is_cut_between_its_blocks(tmp_path: Path, keras3: Zygote) -> None:
    given = {"epochs": 1, "global_batch_size": 128, "params": {"characters": 8000, "width": 16, "heads": 2}}
    one = gang(tmp_path / "one", RECIPES / "transformer_lm.py", Strategy.ONE_DEVICE, **given).start(keras3)
    two = gang(tmp_path / "two", RECIPES / "transformer_lm.py", Strategy.PIPELINE, devices=2, **given).start(keras3)
    losses, found = (ended(job).series("loss") for job in (one, two))
    assert len(losses) > 2
    assert max(abs(found[step] - losses[step]) for step in losses) <= 1e-6
    assert [stage["layers"].split(", ")[-1] for stage in two["worker:0"].facts()["stages"]] == ["block_0", "scores"]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("name", "names 'nowhere'; the model's layers are first, second, third, scores"),
        ("homeless", "gives the layer 'second' to no stage"),
        ("count", "gave 1 stages for 2 devices"),
    ],
)
def test_stages_that_cannot_be_are_refused_in_words(wrong: str, words: str, tmp_path: Path, keras3: Zygote) -> None:
    job = started(tmp_path / "job", keras3, Strategy.PIPELINE, devices=2, params={"wrong": wrong})
    job.wait(60)
    assert words in job["worker:0"].failure().message


def test_a_pipeline_goes_on_from_its_checkpoint(tmp_path: Path, keras3: Zygote) -> None:
    place = tmp_path / "checkpoints"
    whole = ended(started(tmp_path / "whole", keras3, Strategy.PIPELINE, devices=2, checkpoints=place))
    first = sorted(place.glob("*"))[0]
    rest = ended(started(tmp_path / "rest", keras3, Strategy.PIPELINE, devices=2, restore=first))
    losses = whole.series("loss")
    found = rest.series("loss")
    assert list(found) == list(range(STEPS // 2 + 1, STEPS + 1))
    assert max(abs(found[step] - losses[step]) for step in found) <= 1e-6
