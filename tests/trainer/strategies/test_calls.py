"""Calls of parameter servers' coordinator under way: bounded, in order, errors handed on; and how fast they are."""

import pytest

from worker_agent.trainer.strategies.served.speed_window import Call, SpeedWindow
from worker_agent.trainer.strategies.served.worker_call import CallsUnderWay

pytestmark = pytest.mark.tf  # the module imports TensorFlow


class Remote:
    """A result that can be fetched."""

    def __init__(self, value: int, begun: list[int]) -> None:
        self._value = value
        begun.append(value)

    def fetch(self) -> int:
        if self._value < 0:
            raise ValueError("lost")
        return self._value


def test_results_come_in_the_order_of_the_calls_of_which_no_more_than_the_bound_are_under_way() -> None:
    begun: list[int] = []
    calls = CallsUnderWay(3)
    came: list[int] = []
    for number in range(5):
        came += calls.add(lambda number=number: Remote(number, begun))  # type: ignore[misc]
        assert begun == list(range(number + 1)), "a call is made at once"
        assert len(calls) == min(number + 1, 2), "there is room for one more"
    assert came == [0, 1, 2]
    assert list(calls.rest()) == [3, 4]
    assert not calls


def test_an_error_of_a_worker_reaches_whoever_waits() -> None:
    calls = CallsUnderWay(2)
    assert list(calls.add(lambda: Remote(-1, []))) == []
    with pytest.raises(ValueError, match="lost"):
        list(calls.rest())


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_window_weighs_workers_by_their_steps() -> None:
    clock = Clock()
    window = SpeedWindow(clock)
    clock.now = 0.5
    assert not window.add(Call(worker=1, seconds=0.2, staleness=[0, 3]))
    clock.now = 1.5
    assert window.add(Call(worker=0, seconds=0.3, staleness=[0]))
    speed, scalars = window.tell()
    assert speed.step_time_s == pytest.approx(0.5 / 3)
    assert speed.steps_per_s == pytest.approx(3 / 1.5)
    assert scalars == pytest.approx(
        {"staleness": 1, "staleness_max": 3, "step_time_ms/worker 0": 300, "step_time_ms/worker 1": 100}
    )


@pytest.mark.parametrize("steps", [1, 9, 10, 11, 14, 15, 19, 25, 100])
def test_speeds_are_steps_over_wall_clock_however_long_an_epoch_is(steps: int) -> None:
    """Two workers that each end a step every 0.2 s, both at the same time; a window is 1 s long."""
    clock = Clock()
    window = SpeedWindow(clock)
    told = []
    for step in range(1, steps + 1):
        clock.now = 0.2 * step
        tells = [window.add(Call(worker=worker, seconds=0.2, staleness=[0])) for worker in (0, 1)]
        if step < steps and any(tells):
            told.append(window.tell()[0].steps_per_s)
    told.append(window.tell()[0].steps_per_s)
    assert told == pytest.approx([10.0] * len(told)), "also of the rest, which may be far shorter than a window"
    assert len(told) == (steps - 1) // 5 + 1
