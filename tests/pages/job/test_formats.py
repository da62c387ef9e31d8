"""Numbers, sizes, durations and moments as pages write them."""

from datetime import timedelta

import pytest
from django.utils import timezone

from dashboard.templatetags.trainyard import (
    duration,
    event_state,
    figure,
    filesize,
    group,
    headline,
    path,
    share,
    sparkline,
    when,
)
from dashboard.tones import SHAPES, TONES
from tests.environment import ROOT
from worker_agent.protocol.states import JobStatus, NodeState, ReplicaStatus


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (41286, "41\u202f286"),
        (0, "0"),
        (-1234.4, "\u22121\u202f234"),
        (None, "\u2013"),
        ("", "\u2013"),
        ("x", "\u2013"),
    ],
)
def test_whole_numbers(value: object, text: str) -> None:
    assert group(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.9502, "1.9502"),
        (12.345, "12.35"),
        (123.45, "123.5"),
        (14651.2, "14\u202f651"),
        (0.00012, "1.20e\u221204"),
        (-0.5, "\u22120.5000"),
        (0, "0.0000"),
        (float("nan"), "NaN"),
        (float("-inf"), "\u2212∞"),
        ("NaN", "NaN"),
        ("Infinity", "∞"),
        (None, "\u2013"),
    ],
)
def test_measured_numbers(value: object, text: str) -> None:
    assert figure(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.9, "59 s"), (60, "1 min"), (14580, "4 h 03 min"), (190000, "2 d 4 h"), (-3, "0 s"), (None, "–")],  # noqa: RUF001
)
def test_durations(seconds: object, text: str) -> None:
    assert duration(seconds) == text


def test_sizes_and_shares() -> None:
    assert [filesize(size) for size in (0, 999, 1500, 33_100_000_000)] == [
        "0\u202fB",
        "999\u202fB",
        "1.5\u202fkB",
        "33.1\u202fGB",
    ]
    assert [share(5, 10), share(20, 10), share(7, 10, 2)] == ["50.000", "100.000", "50.000"]


def test_moments() -> None:
    now = timezone.now()
    assert f">{now:%H:%M}</time>" in when(now)
    assert ">Yesterday</time>" in when(now - timedelta(days=1))
    assert f">{(now - timedelta(days=9)):%b}" not in when(now - timedelta(days=9))
    assert f"{(now - timedelta(days=9)):%H:%M}</time>" in when(now - timedelta(days=9), "full")
    assert when(None) == "\u2013"


def test_a_curve_needs_two_finite_points() -> None:
    assert sparkline([1.0]) == ""
    assert sparkline([float("nan"), 1.0, "NaN"]) == ""
    assert 'd="M0.0 26.0L100.0 2.0"' in sparkline([1.0, float("inf"), 2.0])
    assert "nan" not in sparkline([3.0, 3.0, float("nan")])
    assert 'd="M0.0 25.8L100.0 14.0"' in sparkline([1.0, 50.0], top=100)


def test_words_of_jobs() -> None:
    assert [event_state(kind) for kind in ("job_failed", "node_lost", "replica_started", "agent")] == [
        "failed",
        "lost",
        "",
        "",
    ]
    assert headline("It broke. The last lines it wrote:\nTraceback") == "It broke."
    assert len(headline("x" * 900)) == 201


def test_every_state_has_a_colour_and_a_silhouette() -> None:
    sprite = (ROOT / "dashboard/static/dashboard/icons.svg").read_text()
    for state in (*JobStatus, *ReplicaStatus, *NodeState):
        assert state.value in TONES
        assert f'id="st-{SHAPES.get(state, state)}"' in sprite


def test_a_path_may_break_behind_its_slashes_and_stays_escaped() -> None:
    assert path("runs/a_b/<c>.txt") == "runs/<wbr>a_<wbr>b/<wbr>&lt;c&gt;.txt"
