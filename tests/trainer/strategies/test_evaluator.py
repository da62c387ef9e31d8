"""The evaluator of a synchronous gang; that of parameter servers is tested with them. Real processes."""

from pathlib import Path

import pytest

from tests.trainer.gang import Zygote, gang
from tests.waiting import wait_until
from worker_agent.protocol.states import Cause, Strategy

pytestmark = pytest.mark.tf

RECIPES = Path(__file__).parents[1] / "recipes"
TINY, COUNTED = RECIPES / "tiny.py", RECIPES / "counted.py"
EVALUATOR = "evaluator:0"
SPEC = {"epochs": 3, "seed": 5}


def test_it_finds_what_the_gang_itself_would_have_found(keras3: Zygote, tmp_path: Path) -> None:
    alone = gang(tmp_path / "alone", TINY, Strategy.ONE_DEVICE, **SPEC).start(keras3)
    judged = gang(
        tmp_path / "judged",
        TINY,
        Strategy.MULTI_WORKER_MIRRORED,
        workers=2,
        validation="evaluator",
        checkpoints=tmp_path / "checkpoints",
        **SPEC,
    ).start(keras3)
    for each in (alone, judged):
        each.wait(180)
        assert {member.exit().cause for member in each.members} == {Cause.COMPLETED}
    truth, lead, found = alone["worker:0"], judged["worker:0"], judged[EVALUATOR]
    assert found.phases() == ["importing", "building", "evaluating", "done"]
    for name in ("val_loss", "val_accuracy"):
        assert found.series(name) == pytest.approx(truth.series(name), abs=1e-6)
        assert lead.series(name) == {}
    assert [each.epoch for each in found.summaries()] == [1, 2, 3]


def test_it_leaves_when_it_is_told_to_and_when_there_is_nothing_to_judge_with(keras3: Zygote, tmp_path: Path) -> None:
    given = {"validation": "evaluator", "checkpoints": tmp_path / "none", **SPEC}
    waiting = gang(tmp_path / "1", TINY, Strategy.MULTI_WORKER_MIRRORED, **given)
    useless = gang(tmp_path / "2", COUNTED, Strategy.MULTI_WORKER_MIRRORED, **given)
    for each in (waiting, useless):
        keras3.start(each[EVALUATOR])
    wait_until(lambda: "evaluating" in waiting[EVALUATOR].phases(), 120, "the evaluator waits")
    waiting.stop()
    for each in (waiting, useless):
        each.wait(120, names=[EVALUATOR])
    assert waiting[EVALUATOR].exit().cause is Cause.STOPPED
    failure = useless[EVALUATOR].failure()
    assert failure is not None
    assert failure.message == "The recipe has no validation rows for an evaluator: set validation to gang."
