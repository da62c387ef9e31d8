"""When a gang counts as hung: by step, by phase, by what is usual there; and what is said of it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.domain.gang.hangs import Limits, Rank, reason_of_hang
from worker_agent.protocol.states import Kind

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LIMITS = Limits(step_s=300, phase_s=1800)


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
