"""The small curve of a job: bounded, in order, and without what was done again."""

from math import inf, nan

from orchestrator.domain.sketch import DRAWN, POINTS, Sketch, drawn, extended


def test_it_stays_small_and_spans_everything() -> None:
    sketch: Sketch = []
    for begin in range(0, 100_000, 50):
        sketch = extended(sketch, range(begin, begin + 50), [float(step) for step in range(begin, begin + 50)])
        assert len(sketch) <= POINTS
    steps = [step for step, _ in sketch]
    assert steps == sorted(steps)
    assert steps[0] == 0
    assert steps[-1] > 90_000
    assert len(sketch) > POINTS / 3
    values = drawn(sketch)
    assert len(values) == DRAWN
    assert values == sorted(values)


def test_a_later_attempt_replaces_what_it_does_again() -> None:
    sketch = extended([], [1, 2, 3, 4], [9.0, 8.0, 7.0, 6.0])
    assert extended(sketch, [3, 4], [1.0, 0.5]) == [[1, 9.0], [2, 8.0], [3, 1.0], [4, 0.5]]


def test_what_is_no_number_is_not_drawn() -> None:
    assert extended([], [1, 2, 3], [nan, inf, 2.0]) == [[3, 2.0]]
    assert drawn([[3, 2.0]]) == []
    assert extended([], [], []) == []
