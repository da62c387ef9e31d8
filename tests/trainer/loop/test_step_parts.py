"""Where a step's time goes: the arithmetic, and real gangs with a cause planted in them."""

from pathlib import Path
from statistics import median

import numpy as np
import pytest

from tests.trainer.gang import Member, Zygote, gang
from worker_agent.protocol.records import STEP_PARTS_AFTER_S, STEP_PARTS_EVERY_S, StepPart
from worker_agent.protocol.states import Cause, Strategy
from worker_agent.trainer.loop.step_parts import Due, Moments, parts_of

PLANTED = Path(__file__).parents[1] / "recipes/planted.py"


def row(began: float, *replicas: tuple[float, ...], own: list[float]) -> list[float]:
    return [began, *(number for replica in replicas for number in replica), *own]


def test_the_parts_of_a_step_add_up_to_it() -> None:
    # Two steps of replica 1 of 2, the second one counted: 2 ms of input, 3 of computing, 4 of waiting, 5 of
    # communication, 6 of applying; 1 ms a step outside of the graph.
    rows = np.array(
        [
            row(0.0, (1, 0.002, 0.005, 0.009), own=[0.005, 0.005]),
            row(0.020, (1, 0.022, 0.025, 0.034), own=[0.020, 0.016]),
        ]
    )
    parts = parts_of(Moments.of(rows, np.float64(0.040), replicas=2), seconds=0.042)
    assert {part.value: round(ms, 6) for part, ms in parts.items()} == {
        **{"input": 2.0, "compute": 3.0, "wait": 4.0, "communication": 5.0, "apply": 6.0, "host": 1.0}
    }


def test_the_replicas_of_one_process_are_told_by_their_mean() -> None:
    # Replica 3 comes 2 ms after replica 2, both go on together.
    rows = np.array([row(0.0, (2, 0.001, 0.003, 0.006), (3, 0.001, 0.005, 0.006), own=[0.005, 0.005, 0.003, 0.005])])
    parts = parts_of(Moments.of(rows, np.float64(0.007), replicas=4), seconds=0.007)
    assert parts[StepPart.COMPUTE] == pytest.approx(3.0)
    assert parts[StepPart.WAIT] == pytest.approx(1.0)
    assert parts[StepPart.COMMUNICATION] == pytest.approx(1.0)
    assert parts[StepPart.APPLY] == pytest.approx(1.0)


def test_a_wait_is_never_longer_than_the_reduction_that_it_is_part_of() -> None:
    rows = np.array([row(0.0, (0, 0.001, 0.002, 0.004), own=[0.002, 0.100])])
    parts = parts_of(Moments.of(rows, np.float64(0.005), replicas=2), seconds=0.005)
    assert (parts[StepPart.WAIT], parts[StepPart.COMMUNICATION]) == (pytest.approx(2.0), 0.0)


def test_a_short_training_is_never_measured_and_a_long_one_every_ten_seconds() -> None:
    now = 100.0
    due = Due(clock=lambda: now)
    assert not due
    now += STEP_PARTS_AFTER_S - 0.1
    assert not due
    now += 0.1
    assert due
    due.taken()
    assert not due
    now += STEP_PARTS_EVERY_S
    assert due
    assert not Due(never=True, clock=lambda: 1e9)


@pytest.mark.tf
def test_a_slow_worker_is_waited_for_by_the_other(tmp_path: Path, keras3: Zygote) -> None:
    planted = gang(
        *(tmp_path, PLANTED, Strategy.MULTI_WORKER_MIRRORED),
        **{"workers": 2, "epochs": 1, "global_batch_size": 16, "params": {"lag_ms": 20, "of_worker": 1}},
    ).start(keras3)
    planted.wait(180)
    assert [member.exit().cause for member in planted.members] == [Cause.COMPLETED] * 2
    quick, slow = planted.members
    assert part(quick, StepPart.WAIT) > 15 > 8 > part(slow, StepPart.WAIT)
    assert part(slow, StepPart.COMPUTE) > 20 > 15 > part(quick, StepPart.COMPUTE)
    for member in planted.members:
        step = median(list(member.series("step_time_ms").values())[3:])
        assert sum(part(member, each) for each in StepPart) == pytest.approx(step, rel=0.5)
    assert list(quick.series("loss")) == list(range(1, max(quick.series("loss")) + 1))


@pytest.mark.tf
def test_a_slow_input_is_told_from_computing(tmp_path: Path, keras3: Zygote) -> None:
    planted = gang(
        *(tmp_path, PLANTED, Strategy.MIRRORED),
        **{"devices": 2, "epochs": 1, "global_batch_size": 16, "params": {"input_ms": 20}},
    ).start(keras3)
    planted.wait(180)
    [alone] = planted.members
    assert part(alone, StepPart.INPUT) > 15 > part(alone, StepPart.COMPUTE)


def part(member: Member, name: StepPart) -> float:
    """In ms."""
    return median(member.series(name.series).values())
