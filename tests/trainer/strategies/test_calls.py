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
    window.go_on()
    clock.now = 0.5
    window.add(Call(worker=1, seconds=0.2, staleness=[0, 3]))
    assert not window.is_full()
    clock.now = 1.5
    window.add(Call(worker=0, seconds=0.3, staleness=[0]))
    assert window.is_full()
    speed, scalars = window.tell()
    assert speed.step_time_s == pytest.approx(0.5 / 3)
    assert speed.steps_per_s == pytest.approx(3 / 1.5)
    assert scalars == pytest.approx(
        {"staleness": 1, "staleness_max": 3, "step_time_ms/worker 0": 300, "step_time_ms/worker 1": 100}
    )


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 8, 25])
def test_speeds_are_steps_over_the_time_that_they_took_however_short_an_epoch_is(steps: int) -> None:
    """Two workers that each end a step every 0.2 s, both at the same time; 3 s lie between the epochs of `steps`."""
    clock = Clock()
    window = SpeedWindow(clock)
    told = []
    for _ in range(20):
        window.go_on()
        for step in range(steps):
            clock.now += 0.2
            for worker in (0, 1):
                if step == steps - 1 and worker == 1:
                    window.rest()
                window.add(Call(worker=worker, seconds=0.2, staleness=[0]))
            if window.is_full():
                told.append(window.tell()[0].steps_per_s)
        clock.now += 3.0
    assert told == pytest.approx([10.0] * len(told))
    assert 0.9 * 4 * steps <= len(told) <= 4 * steps / 0.5 + 1, "neither a point for each short epoch nor too few"
