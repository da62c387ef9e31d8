"""What holds a training up: said when it is so, and not on noise."""

import random

import pytest

from orchestrator.domain.step_time import Finding, Holding, Sample, findings, recent
from worker_agent.protocol.records import StepPart


def parts(**ms: float) -> dict[StepPart, float]:
    return {part: ms.get(part, 0.0) for part in StepPart}


EVEN = {"worker:0": parts(compute=8, communication=1, apply=1), "worker:1": parts(compute=8, communication=1, apply=1)}
LATE = {
    "worker:0": parts(compute=8, wait=8, communication=1, apply=1),
    "worker:1": parts(compute=16, communication=1, apply=1),
}
HUNGRY = {"worker:0": parts(input=6, compute=4)}
SLOW_NET = {name: parts(compute=4, communication=12) for name in EVEN}


@pytest.mark.parametrize(
    ("sample", "found"),
    [
        (EVEN, []),
        (LATE, [(Holding.STRAGGLER, 0.44, "worker:1", 1.89)]),
        (HUNGRY, [(Holding.INPUT, 0.6, "", 0.0)]),
        (SLOW_NET, [(Holding.COMMUNICATION, 0.75, "", 0.0)]),
        ({"worker:0": parts(compute=1, apply=2)}, [(Holding.APPLY, 0.67, "", 0.0)]),
        ({"worker:0": parts(compute=1, host=1)}, [(Holding.HOST, 0.5, "", 0.0)]),
        ({"worker:0": parts()}, []),
    ],
)
def test_what_holds_it_up(sample: Sample, found: list[tuple[Holding, float, str, float]]) -> None:
    said = [(each.holding, round(each.share, 2), each.replica, round(each.times, 2)) for each in findings([sample] * 3)]
    assert said == found


def test_it_is_said_after_three_samples_and_taken_back_after_three() -> None:
    assert [bool(findings([EVEN, *[LATE] * number])) for number in range(4)] == [False, False, False, True]
    assert [bool(findings([*[LATE] * 3, *[EVEN] * number])) for number in range(4)] == [True, True, True, False]
    assert findings([LATE, EVEN] * 20) == []


def test_most_of_it_comes_first() -> None:
    sample = {"worker:0": parts(input=5, compute=2, host=4)}
    assert [each.holding for each in findings([sample] * 3)] == [Holding.INPUT, Holding.HOST]


def test_nothing_is_said_of_workers_whose_times_wander() -> None:
    """A random walk around even times, within 10 %: a hundred runs of an hour."""
    for seed in range(100):
        chance, times, samples = random.Random(seed), [10.0, 10.0, 10.0], []
        for _ in range(360):
            times = [min(11.0, max(9.0, ms + chance.gauss(0, 0.4))) for ms in times]
            slowest = max(times)
            samples.append(
                {f"worker:{i}": parts(compute=ms, wait=slowest - ms, communication=1) for i, ms in enumerate(times)}
            )
        assert findings(samples) == []


def test_the_recent_parts_are_medians_of_what_each_replica_told() -> None:
    samples: list[Sample] = [{"a": parts(compute=ms)} for ms in (100, 1, 3, 2)]
    samples.append({"b": parts(compute=7)})
    assert recent(samples)["a"][StepPart.COMPUTE] == 2.5
    assert recent(samples)["b"][StepPart.COMPUTE] == 7


def test_a_replica_that_told_nothing_holds_nobody_up() -> None:
    assert findings([{"worker:0": parts(compute=8, wait=8)}] * 3) == []
    assert findings([]) == []
    assert isinstance(findings([LATE] * 3)[0], Finding)
