"""Which candidate runs next."""

import pytest

from orchestrator.domain.strategy_test.measured import Measured
from orchestrator.domain.strategy_test.schedule import Contender, beaten, next_run


def run(rate: float) -> Measured:
    return Measured(examples_per_s=rate, step_time_ms=1.0, devices=1, seconds=1.0)


def contenders(*rates: list[float | None]) -> list[Contender]:
    return [
        Contender(place, [None if rate is None else run(rate) for rate in each]) for place, each in enumerate(rates)
    ]


def order(rates: list[float], *, rounds: int, until_target: bool = False) -> str:
    """The whole test of candidates that always measure the same, by letters."""
    had: list[list[float | None]] = [[] for _ in rates]
    told = ""
    while (place := next_run(contenders(*had), rounds=rounds, until_target=until_target)) is not None:
        had[place].append(rates[place])
        told += "ABC"[place]
    return told


@pytest.mark.parametrize(
    ("rates", "rounds", "expected"),
    [
        ([100, 90, 80], 2, "ABCABC"),  # interleaved
        ([100, 90, 40], 2, "ABCAB"),  # C is 2.5 times behind after its first run
        ([100, 90, 60], 3, "ABCABCAB"),  # C is 1.7 times behind and beyond the spread after its second run
        ([100, 100, 70], 1, "ABCAB"),  # the winner is open: a further round of those that may win, then it is clear
        ([100], 2, "AA"),
    ],
)
def test_the_order_of_a_whole_test(rates: list[float], rounds: int, expected: str) -> None:
    assert order(rates, rounds=rounds).startswith(expected)
    assert len(order(rates, rounds=rounds)) <= len(rates) * (rounds + 2)


def test_equal_candidates_get_two_rounds_more_and_no_further_ones() -> None:
    assert order([100, 100], rounds=2) == "ABABABAB"


def test_where_a_target_counts_nobody_is_left_out_for_being_slow() -> None:
    assert order([100, 10], rounds=2, until_target=True) == "ABAB"


def test_who_failed_or_was_withdrawn_runs_no_more() -> None:
    assert next_run(contenders([None], [], []), rounds=1, until_target=False) == 1
    assert next_run(contenders([None], [None]), rounds=3, until_target=False) is None
    assert next_run([Contender(0, is_out=True), Contender(1)], rounds=1, until_target=False) == 1
    assert next_run([], rounds=1, until_target=False) is None


def test_nobody_is_beaten_before_all_were_measured_once() -> None:
    assert beaten(contenders([100], [10], [])) == {}
    assert beaten(contenders([100], [10], [None])) == {1: 10.0}
