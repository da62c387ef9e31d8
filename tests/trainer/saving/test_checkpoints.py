"""Checkpoints of real gangs: whoever takes one up, as many workers, fewer or more, goes on as if never interrupted."""

from pathlib import Path

import pytest

from tests.trainer.gang import Gang, Zygote, gang
from tests.waiting import wait_until
from worker_agent.protocol.checkpoint import MARKER
from worker_agent.protocol.records import Checkpointed, Facts, Stream
from worker_agent.protocol.states import Cause, Strategy
from worker_agent.replica.checkpoint_folder import complete_in
from worker_agent.replica.spool import Reader

pytestmark = pytest.mark.tf

TINY = Path(__file__).parents[1] / "recipes" / "tiny.py"
# 320 rows make 6 steps an epoch; step 7 lies within the second of three epochs.
SPEC = {"global_batch_size": 48, "epochs": 3, "seed": 5, "checkpoint_steps": 7, "checkpoints_kept": 9}
RESUMED = "step-0000000007-a1"


@pytest.fixture(scope="module")
def whole(keras3: Zygote, tmp_path_factory: pytest.TempPathFactory) -> tuple[Gang, Path]:
    """Two workers that train to the end, and where their checkpoints are."""
    folder = tmp_path_factory.mktemp("whole")
    trained = gang(
        folder / "gang",
        TINY,
        Strategy.MULTI_WORKER_MIRRORED,
        workers=2,
        checkpoints=folder / "checkpoints",
        exports=True,
        params={"width": 16},
        **SPEC,
    ).start(keras3)
    trained.wait()
    return trained, folder / "checkpoints"


def test_they_are_complete_and_of_the_chief_alone(whole: tuple[Gang, Path]) -> None:
    trained, folder = whole
    markers = complete_in(folder)
    assert [marker.step for marker in markers.values()] == [7, 14, 18]
    assert sorted(path.name for path in folder.iterdir()) == sorted(markers)
    told = trained["worker:0"].records(Checkpointed)
    assert [(each.step, each.epoch, each.shared) for each in told] == [(7, 1, False), (14, 2, False), (18, 3, False)]
    assert told[-1].kept == sorted(markers)
    assert "val_loss" in told[-1].metrics
    assert "val_loss" not in told[0].metrics
    assert trained["worker:1"].records(Checkpointed) == []
    assert list(Path(trained["worker:1"].plan.scratch).iterdir()) == []
    left = sorted(path.name for path in Path(trained["worker:0"].plan.artifacts).iterdir())
    assert left == ["metrics.json", "model.keras", "saved_model.zip"]


@pytest.mark.parametrize(
    ("strategy", "workers", "devices"),
    [
        (Strategy.ONE_DEVICE, 1, 1),
        (Strategy.MIRRORED, 1, 2),
        (Strategy.CENTRAL_STORAGE, 1, 2),
        (Strategy.MULTI_WORKER_MIRRORED, 2, 1),
        (Strategy.MULTI_WORKER_MIRRORED, 3, 1),
    ],
)
def test_it_goes_on_as_if_never_interrupted(
    keras3: Zygote, whole: tuple[Gang, Path], tmp_path: Path, strategy: Strategy, workers: int, devices: int
) -> None:
    trained, folder = whole
    resumed = gang(
        tmp_path, TINY, strategy, workers=workers, devices=devices, restore=folder / RESUMED, attempt=2, **SPEC
    ).start(keras3)
    resumed.wait()
    lead, reference = resumed["worker:0"], trained["worker:0"]
    losses, expected = lead.series("loss"), reference.series("loss")
    assert sorted(losses) == list(range(8, 19))
    assert max(abs(losses[step] - expected[step]) for step in losses) <= 1e-6
    assert [each.epoch for each in lead.summaries()] == [2, 3]
    for ours, theirs in zip(lead.summaries(), reference.summaries()[1:], strict=True):
        assert ours.metrics == pytest.approx(theirs.metrics, abs=1e-6)
    assert lead.records(Facts)[0].facts["resumed"] == {"checkpoint": RESUMED, "step": 7, "job": 1}


def test_a_torn_one_is_passed_over_and_the_last_ones_and_the_best_are_kept(keras3: Zygote, tmp_path: Path) -> None:
    spec = {**SPEC, "epochs": 5, "checkpoint_steps": 0, "checkpoints_kept": 2, "params": {"dropout": 0.5}}
    folder = tmp_path / "checkpoints"
    trained = gang(tmp_path / "1", TINY, Strategy.ONE_DEVICE, checkpoints=folder, **spec)
    lead = trained["worker:0"]
    spool = Path(lead.plan.spool) / Stream.TRAINER
    trained.start(keras3)
    wait_until(lambda: lead.said(Stream.TRAINER), 60, "it speaks")
    Reader(spool).acknowledge(10**9)  # else those that the control plane may know stay as well
    trained.wait()
    ranked = sorted(lead.records(Checkpointed), key=lambda each: each.metrics["val_loss"])
    assert sorted(complete_in(folder)) == sorted({ranked[0].name, *(f"step-{step:010d}-a1" for step in (24, 30))})

    data = next((folder / "step-0000000030-a1").glob("state.data*"))
    data.write_bytes(bytes(len(data.read_bytes())))
    resumed = gang(
        tmp_path / "2", TINY, Strategy.ONE_DEVICE, restore=folder / "step-0000000030-a1", attempt=2, **spec
    ).start(keras3)
    resumed.wait()
    losses, expected = resumed["worker:0"].series("loss"), lead.series("loss")
    assert sorted(losses) == list(range(25, 31))  # dropout's seeds are in the checkpoint, or these would differ
    assert max(abs(losses[step] - expected[step]) for step in losses) <= 1e-6
    assert (folder / "step-0000000024-a1" / MARKER).is_file()


def test_one_of_another_program_is_refused_in_words(keras3: Zygote, whole: tuple[Gang, Path], tmp_path: Path) -> None:
    _, folder = whole
    cases = {
        "j-1, which wrote it, had width 16: set those that shape the model to these": {"params": {"width": 24}},
        "a global batch of 48, not 64": {"global_batch_size": 64},
        "6 steps per epoch, this data has 5": {"params": {"rows": 250}},
        "at step 7 already has epoch 1. Set 2 epochs or more": {"epochs": 1, "job_id": 2},
    }
    gangs = {
        words: gang(tmp_path / str(number), TINY, Strategy.ONE_DEVICE, restore=folder / RESUMED, **(SPEC | changed))
        for number, (words, changed) in enumerate(cases.items())
    }
    for each in gangs.values():
        each.start(keras3)
    for words, each in gangs.items():
        each.wait()
        end = each["worker:0"].exit()
        assert end is not None
        assert end.cause is Cause.EXCEPTION
        assert words in end.message
