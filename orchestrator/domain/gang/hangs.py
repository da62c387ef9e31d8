"""Whether a gang hangs, from what its processes told last and when that became known. Pure; `services/gang/hangs.py`
asks.

Each process tells every step it takes. One that is silent for longer than it may is taken for hung, and so its gang:
in a collective all wait for the slowest, so all have as long as the one with the most to do. How long that is follows
from what a process is at, from the longest that it ever took from one step to the next, and from how long its steps
alone take: slow is not hung. A script is judged only while it says that it takes steps; servers and evaluators never
are, they wait for others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from worker_agent.protocol.records import PhaseName
from worker_agent.protocol.states import Kind

TIMES_LONGEST = 3.0
# A step of 0.2 s is waited for for two minutes: so long may a disk, a file system or an input stand still.
TIMES_STEP = 100.0
LEAST_S = 120.0
STEPPING = {Kind.RECIPE: PhaseName.TRAINING, Kind.SCRIPT: PhaseName.STEPPING}
NOT_JUDGED = {
    Kind.RECIPE: frozenset({PhaseName.SERVING, PhaseName.EVALUATING}),
    Kind.SCRIPT: frozenset({PhaseName.SERVING, PhaseName.EVALUATING, PhaseName.TRAINING}),
}


@dataclass(frozen=True)
class Rank:
    """A live process of the gang. `heard_at` is when its latest step or milestone became known, None before its first
    sign of life; `step` the last it told; `longest_gap_s` the longest between two of its steps, as far as it told;
    `longest_step_s` the same where it did nothing but take steps, None while it has taken few."""

    who: str
    phase: str
    step: int | None
    heard_at: datetime | None
    longest_gap_s: float = 0.0
    longest_step_s: float | None = None


@dataclass(frozen=True)
class Limits:
    """How long a process may be silent: between two steps, and while it starts, validates, saves or leaves. Fast steps
    have less than `step_s`, as far down as `least_s`."""

    step_s: float
    least_s: float
    phase_s: float


def reason_of_hang(
    ranks: Sequence[Rank], *, kind: Kind, total_steps: int, limits: Limits, listening_since: datetime, now: datetime
) -> str:
    """Why the gang counts as hung, in a sentence; "" while it does not.

    `listening_since` is since when nothing that the gang says could have been missed. `total_steps` is 0 while unknown.
    """
    judged = [rank for rank in ranks if rank.phase not in NOT_JUDGED[kind]]
    allowed_s = max((_allowed_s(rank, kind, total_steps, limits) for rank in judged), default=limits.phase_s)
    silent = [
        rank
        for rank in judged
        if rank.heard_at is not None and now - max(rank.heard_at, listening_since) > timedelta(seconds=allowed_s)
    ]
    return _said(silent, judged, allowed_s, now) if silent else ""


def _allowed_s(rank: Rank, kind: Kind, total_steps: int, limits: Limits) -> float:
    is_done = total_steps > 0 and rank.step is not None and rank.step >= total_steps
    if rank.phase == STEPPING[kind] and rank.step is not None and not is_done:
        step_s = limits.step_s
        if rank.longest_step_s is not None:
            step_s = min(step_s, max(limits.least_s, TIMES_STEP * rank.longest_step_s))
        return max(step_s, TIMES_LONGEST * rank.longest_gap_s)
    return max(limits.phase_s, TIMES_LONGEST * rank.longest_gap_s)


def _said(silent: list[Rank], judged: list[Rank], allowed_s: float, now: datetime) -> str:
    """The one that is furthest behind is named; where nobody is, nobody."""
    last = min(silent, key=lambda rank: (-1 if rank.step is None else rank.step, rank.heard_at or now))
    silent_s = (now - (last.heard_at or now)).total_seconds()
    furthest = max((rank.step or 0 for rank in judged), default=0)
    is_behind = furthest > (last.step or 0)
    where = "none yet" if last.step is None else f"the last was step {last.step}"
    where += f"; others reached step {furthest}" if is_behind else ""
    where += f'; it says "{last.phase}"' if last.phase and last.phase != PhaseName.TRAINING else ""
    is_alone = len(judged) == 1 or len(silent) < len(judged) or is_behind
    who = f"{last.who} has taken no step" if is_alone else f"None of {len(judged)} processes has taken a step"
    return f"{who} for {silent_s:.0f} s ({where}); {allowed_s:.0f} s are allowed."
