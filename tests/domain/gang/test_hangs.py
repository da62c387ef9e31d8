"""When a gang counts as hung: by step, by phase, by what is usual there; and what is said of it."""

import random
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.domain.gang.hangs import Limits, Rank, reason_of_hang
from worker_agent.protocol.records import LONGEST_GAP, LONGEST_STEP, Facts, Phase, PhaseName, Progress, Record
from worker_agent.protocol.states import Kind
from worker_agent.trainer.pulse import Pulse

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LIMITS = Limits(step_s=300, least_s=120, phase_s=1800)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def rank(number: int = 0, *, silent_s: float = 0, step: int | None = 57, phase: str = "training", **more) -> Rank:
    who = f"worker {number} on node-{number + 1}"
    return Rank(who=who, phase=phase, step=step, heard_at=ago(silent_s), **more)


def asked(*ranks: Rank, kind: Kind = Kind.RECIPE, total_steps: int = 100, listening_s: float = 1e6) -> str:
    since = ago(listening_s)
    return reason_of_hang(ranks, kind=kind, total_steps=total_steps, limits=LIMITS, listening_since=since, now=NOW)


def test_a_step_may_take_as_long_as_the_limit() -> None:
    assert asked(rank(silent_s=300)) == ""
    assert asked(rank(silent_s=301)) == (
        "worker 0 on node-1 has taken no step for 301 s (the last was step 57); 300 s are allowed."
    )


def test_where_all_wait_nobody_is_named() -> None:
    said = asked(rank(0, silent_s=310), rank(1, silent_s=311))
    assert said == "None of 2 processes has taken a step for 311 s (the last was step 57); 300 s are allowed."


@pytest.mark.parametrize("others_silent_s", [0, 305])
def test_who_is_behind_is_named(others_silent_s: float) -> None:
    said = asked(rank(0, silent_s=others_silent_s, step=60), rank(1, silent_s=400))
    assert said.startswith(
        "worker 1 on node-2 has taken no step for 400 s (the last was step 57; others reached step 60)"
    )


@pytest.mark.parametrize(("silent_s", "hung"), [(1000, False), (1201, True)])
def test_slow_is_not_hung(silent_s: float, hung: bool) -> None:
    """A step that usually takes 400 s may take three times as long; the slowest one's time counts for all."""
    said = asked(rank(0, silent_s=silent_s), rank(1, silent_s=silent_s, longest_gap_s=400))
    assert bool(said) is hung


@pytest.mark.parametrize(
    ("longest_step_s", "longest_gap_s", "allowed_s"),
    [(0.05, 0, 120), (0.2, 0, 120), (1.8, 0, 180), (4, 0, 300), (0.2, 60, 180), (0.2, 400, 1200), (None, 0, 300)],
)
def test_what_is_allowed_follows_the_steps(longest_step_s: float | None, longest_gap_s: float, allowed_s: int) -> None:
    told = {"longest_step_s": longest_step_s, "longest_gap_s": longest_gap_s}
    assert asked(rank(silent_s=allowed_s, **told)) == ""
    assert asked(rank(silent_s=allowed_s + 1, **told)).endswith(f"; {allowed_s} s are allowed.")


def test_a_gang_has_as_long_as_its_slowest_steps() -> None:
    fast, slow = rank(0, silent_s=200, longest_step_s=0.2), rank(1, silent_s=200, longest_step_s=2.5)
    assert asked(fast, slow) == ""
    assert asked(fast) != ""


@pytest.mark.parametrize("seed", range(20))
def test_whoever_gets_on_is_never_hung(seed: int) -> None:
    """Steps of any length, a disk that stands still for a minute among them, long validations that are told, seen by a
    sweep every 2 s through a trainer's own words."""
    dice = random.Random(seed)
    usual_s, now = dice.choice([0.02, 0.2, 1, 8, 100, 1000]), 0.0
    clock = lambda: now  # noqa: E731
    told: list[Record] = []
    pulse = Pulse(told.append, now=clock)
    pulse.note([Phase(at=0, name=PhaseName.BUILDING)])
    phase, facts = PhaseName.BUILDING, {}
    for step in range(200):
        kind = dice.choices(["step", "disk", "validates"], [100, 1, 2])[0] if step else "first"
        lasts_s = {
            "first": min(900, 20 * usual_s),
            "step": usual_s * dice.uniform(0.5, 2.5),
            "disk": 60 + usual_s,
            "validates": dice.uniform(0, 1700),
        }[kind]
        activity = pulse.during(PhaseName.VALIDATING) if kind == "validates" else nullcontext()
        heard_at, ends = now, now + lasts_s
        with activity:
            while now < ends:
                now = min(ends, now + max(2.0, lasts_s / 100))
                pulse.tell_what_lasts()
                for record in told:
                    if isinstance(record, Phase):
                        phase, heard_at = record.name, now
                    elif isinstance(record, Facts):
                        facts |= record.facts
                told.clear()
                seen = {"longest_gap_s": facts.get(LONGEST_GAP, 0.0), "longest_step_s": facts.get(LONGEST_STEP)}
                silent = rank(silent_s=now - heard_at, step=step or None, phase=phase, **seen)
                assert asked(silent, total_steps=10_000) == "", (kind, lasts_s, facts)
        phase = PhaseName.TRAINING
        pulse.note([Progress(at=0, step=step + 1, total_steps=0, epoch=0, epochs=0)])


@pytest.mark.parametrize("phase", ["importing", "building", "validating", "saving", "done", ""])
def test_what_is_no_step_has_more_time(phase: str) -> None:
    """Also for those who have nothing to do meanwhile but wait for the one that saves."""
    assert asked(rank(0, silent_s=1700, phase=phase), rank(1, silent_s=1700)) == ""
    assert asked(rank(0, silent_s=1801, phase=phase), rank(1, silent_s=1801)) != ""
    assert asked(rank(0, silent_s=5000, phase=phase, longest_gap_s=2000)) == ""


def test_the_first_step_has_more_time_and_is_said_to_be_it() -> None:
    assert asked(rank(silent_s=1700, step=None, phase="building")) == ""
    said = asked(rank(silent_s=1900, step=None, phase="building"))
    assert said.endswith('has taken no step for 1900 s (none yet; it says "building"); 1800 s are allowed.')


def test_after_the_last_step_the_model_is_saved() -> None:
    assert asked(rank(silent_s=1700, step=100)) == ""
    assert asked(rank(silent_s=1700, step=100), total_steps=0) != ""


@pytest.mark.parametrize("phase", ["serving", "evaluating"])
def test_who_waits_for_others_is_not_judged(phase: str) -> None:
    assert asked(rank(0), rank(1, silent_s=1e5, step=None, phase=phase)) == ""
    assert asked(rank(0, silent_s=301), rank(1, silent_s=1e5, step=None, phase=phase)).startswith("worker 0")


def test_a_script_is_judged_while_it_says_that_it_takes_steps() -> None:
    assert asked(rank(silent_s=1e5), kind=Kind.SCRIPT) == ""
    assert asked(rank(silent_s=301, phase="stepping"), kind=Kind.SCRIPT) != ""
    assert asked(rank(silent_s=1e5, phase="stepping"), rank(1, phase="training"), kind=Kind.SCRIPT) != ""


def test_who_has_not_begun_is_not_silent() -> None:
    assert asked(replace(rank(phase="", step=None), heard_at=None)) == ""
    assert asked() == ""


def test_what_nobody_could_hear_is_no_silence() -> None:
    """The control plane was away, or its clock was set: it has listened for a minute only."""
    assert asked(rank(silent_s=7200), listening_s=60) == ""
    assert asked(rank(silent_s=7200), listening_s=301) != ""


def test_a_clock_that_was_set_back_makes_nobody_hang() -> None:
    assert asked(rank(silent_s=-7200)) == ""
