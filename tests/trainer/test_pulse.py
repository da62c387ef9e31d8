"""What a process says beside its steps, so that one that validates for long is told from one that hangs."""

import pytest

from worker_agent.protocol.records import Facts, Phase, Progress, Record
from worker_agent.trainer.pulse import AGAIN_EVERY_S, LASTS_AFTER_S, STEPS_SEEN, Pulse


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Told:
    """A pulse with what it told."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.clock = Clock()
        self.pulse = Pulse(self.records.append, now=self.clock)

    @property
    def phases(self) -> list[str]:
        return [record.name for record in self.records if isinstance(record, Phase)]

    @property
    def gaps(self) -> list[float]:
        return self.facts("longest_pause_s")

    def facts(self, name: str) -> list[float]:
        facts = [record.facts for record in self.records if isinstance(record, Facts)]
        return [each[name] for each in facts if name in each]

    def step(self, after_s: float) -> None:
        self.clock.now += after_s
        self.pulse.note([Progress(at=0.0, step=1, total_steps=0, epoch=0, epochs=0)])


@pytest.fixture
def told() -> Told:
    return Told()


def test_what_is_soon_over_is_not_told(told: Told) -> None:
    with told.pulse.during("saving"):
        told.clock.now += LASTS_AFTER_S - 0.1
        told.pulse.tell_what_lasts()
    told.pulse.tell_what_lasts()
    assert told.records == []


def test_what_lasts_is_told_once_and_its_end_too(told: Told) -> None:
    with told.pulse.during("saving"):
        for _ in range(100):
            told.clock.now += LASTS_AFTER_S
            told.pulse.tell_what_lasts()
    assert told.phases == ["saving", "training"]


def test_what_gets_on_is_told_again_now_and_then(told: Told) -> None:
    with told.pulse.during("validating") as moves:
        for _ in range(10):
            told.clock.now += AGAIN_EVERY_S / 5
            moves()
            told.pulse.tell_what_lasts()
    assert told.phases == ["validating", "validating", "training"]


def test_an_exception_ends_it_too(told: Told) -> None:
    with pytest.raises(ValueError, match="full"):
        _fail_while_saving(told)
    assert told.phases == ["saving", "training"]


def test_a_script_is_at_its_steps_as_long_as_it_says_so(told: Told) -> None:
    told.clock.now += 400.0
    for _ in range(3):
        told.pulse.enter("stepping", steps=True)
        told.step(6.0)
        told.pulse.tell_what_lasts()
    told.pulse.leave()
    assert (told.phases, told.gaps) == (["stepping", "training"], [6.0])


def test_the_longest_gap_between_two_steps_is_told_as_it_grows(told: Told) -> None:
    told.pulse.note([Phase(at=0.0, name="building")])
    for after_s in (12.0, 0.1, 4.0, 13.0, 60.0, 30.0):
        told.step(after_s)
    assert told.gaps == [12.0, 60.0]


def test_how_long_a_step_alone_takes_is_told_once_enough_were_taken_and_as_it_grows(told: Told) -> None:
    told.pulse.note([Phase(at=0.0, name="building")])
    told.step(30.0)
    for _ in range(STEPS_SEEN - 1):
        told.step(0.2)
    assert told.facts("longest_step_s") == []
    with told.pulse.during("saving"):
        told.clock.now += 60.0
    for after_s in (0.2, 0.2, 0.22, 2.0, 2.1):
        told.step(after_s)
    assert told.facts("longest_step_s") == [0.2, 2.0]


def test_of_a_script_nobody_knows_what_it_does_between_its_steps(told: Told) -> None:
    told.pulse.enter("stepping", steps=True)
    for _ in range(2 * STEPS_SEEN):
        told.step(0.2)
    assert told.facts("longest_step_s") == []


def test_nor_what_a_callback_does_at_each_batch(told: Told) -> None:
    told.pulse.note([Phase(at=0.0, name="building")])
    told.pulse.does_more()
    for _ in range(2 * STEPS_SEEN):
        told.step(0.2)
    assert told.facts("longest_step_s") == []


def test_what_comes_before_building_is_no_gap(told: Told) -> None:
    told.clock.now += 500.0
    told.pulse.note([Phase(at=0.0, name="rendezvous")])
    told.step(500.0)
    assert told.gaps == []


def _fail_while_saving(told: Told) -> None:
    with told.pulse.during("saving"):
        told.clock.now += LASTS_AFTER_S
        told.pulse.tell_what_lasts()
        raise ValueError("full")
