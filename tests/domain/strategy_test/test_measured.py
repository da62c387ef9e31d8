"""What a run measured."""

import numpy as np
import pytest

from orchestrator.domain.strategy_test.measured import Spread, rate_of, reached_s


def test_the_rate_leaves_the_warm_up_out() -> None:
    steps = np.arange(1, 101)
    times = np.where(steps <= 10, steps * 5.0, 50.0 + (steps - 10) * 0.1)
    assert rate_of(steps, times) == pytest.approx(10.0)


def test_validation_between_epochs_counts() -> None:
    steps = np.arange(1, 102)
    assert rate_of(steps, steps + 10.0 * (steps > 50)) == pytest.approx(80 / 90)


@pytest.mark.parametrize("count", [0, 1, 20])
def test_too_few_steps_tell_no_rate(count: int) -> None:
    assert rate_of(np.arange(count), np.arange(count, dtype=float)) is None


def test_steps_of_half_a_second_tell_no_rate() -> None:
    steps = np.arange(1000)
    assert rate_of(steps, steps / 2000) is None
    assert rate_of(steps, steps / 500) == pytest.approx(500)


def test_the_target() -> None:
    steps, times = np.arange(4), np.array([1.0, 2, 3, 4])
    values = np.array([0.5, np.nan, 0.2, 0.1])
    assert reached_s(steps, times, values, target=0.2, falls=True) == 3.0
    assert reached_s(steps, times, values, target=0.6, falls=False) is None


def test_one_run_is_known_no_better_than_a_rerun() -> None:
    assert Spread.of([]) is None
    one = Spread.of([100.0])
    assert one is not None
    assert (one.low, one.high) == (pytest.approx(91), pytest.approx(109))
    assert Spread.of([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0)
