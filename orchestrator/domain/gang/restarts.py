"""Whether a job is launched again after an attempt has failed, and how soon. Pure; `decisions.decide` asks.

What was not the program's doing (a node lost, a process killed from outside, a port taken, processes that lost one
another) costs the user nothing: such a restart is free and made at once, but not without end. What the program did is
tried again only as often as the job asks for (`max_restarts`), each time after a longer wait. The rest is never tried
again. Which is which stands in the table of causes (`worker_agent/protocol/causes.py`).
"""

from dataclasses import dataclass

from worker_agent.protocol.causes import Blame, Retry, row_of
from worker_agent.protocol.states import Cause

MOST_WITHOUT_PROGRESS = 10
MOST_WITHOUT_A_STEP = 3
FIRST_WAIT_S = 10.0
LONGEST_WAIT_S = 300.0
# At no cost, but not without end, as `Retry.UNLIMITED` is.
FREE_WITHIN_LIMITS = frozenset({Retry.LIMITED, Retry.ONCE, Retry.IF_FURTHER})


@dataclass(frozen=True)
class AttemptEnd:
    """An attempt at its end, or a part of one. `blame` is nobody's where no process failed; `step` is the last it
    reached, `first_step` the one it began with; `digest` tells exceptions apart."""

    number: int
    cause: Cause
    blame: Blame
    step: int
    first_step: int
    digest: str = ""

    @property
    def retry(self) -> Retry:
        """What the table of causes says of it."""
        return row_of(self.cause, self.blame).retry if self.blame else Retry.NEVER

    @property
    def lost_peer(self) -> bool:
        """Whether nobody failed by itself: its processes had met, and lost one another."""
        return self.blame is Blame.PEER and self.cause is not Cause.RENDEZVOUS_TIMEOUT


@dataclass(frozen=True)
class Again:
    """Launch once more, in `wait_s` seconds. `number` counts those of `max_restarts`; 0 where it is free."""

    wait_s: float = 0.0
    number: int = 0


@dataclass(frozen=True)
class Never:
    """Not launched again. `why` is a sentence, or "" where nothing of the kind ever is."""

    why: str = ""


def verdict(present: AttemptEnd, earlier: tuple[AttemptEnd, ...], *, max_restarts: int) -> Again | Never:
    """What follows from the end of the present attempt, after the `earlier` ones of the job, first one first."""
    if present.retry in FREE_WITHIN_LIMITS:
        return _within_limits(present, earlier)
    if present.retry is Retry.COUNTED and max_restarts:
        return _after_the_program(present, earlier, max_restarts)
    return Again() if present.retry is Retry.UNLIMITED else Never()


def _within_limits(present: AttemptEnd, earlier: tuple[AttemptEnd, ...]) -> Again | Never:
    alike = [each for each in earlier if each.retry in FREE_WITHIN_LIMITS and _is_alike(each, present)]
    before = alike[-1] if alike else None
    if before is not None and present.retry is Retry.ONCE:
        return Never(f"The same happened in attempt {before.number}.")
    if before is not None and present.retry is Retry.IF_FURTHER and present.step <= before.step:
        if present.lost_peer:
            return Never(
                f"No process failed by itself, as in attempt {before.number}: "
                "check that its nodes can reach each other."
            )
        return Never(f"The same happened in attempt {before.number}, and there has been no progress since.")
    if _without_a_step([*earlier, present]) >= MOST_WITHOUT_A_STEP:
        return Never(f"This was attempt {MOST_WITHOUT_A_STEP} in a row without a step.")
    if _without_progress([*earlier, present]) >= MOST_WITHOUT_PROGRESS:
        again = f"launched again {MOST_WITHOUT_PROGRESS} times after such failures"
        return Never(f"It has been {again}, and did not get past step {max(each.step for each in earlier)}.")
    return Again()


def _is_alike(one: AttemptEnd, other: AttemptEnd) -> bool:
    return one.lost_peer if other.lost_peer else one.cause is other.cause


def _after_the_program(present: AttemptEnd, earlier: tuple[AttemptEnd, ...], max_restarts: int) -> Again | Never:
    counted = [each for each in earlier if each.retry is Retry.COUNTED]
    if counted and _repeats(present, counted[-1]):
        return Never(
            f"The same exception at the same step ({present.step}) as in attempt {counted[-1].number}: "
            "it would come again, so the job is not launched again."
        )
    if len(counted) >= max_restarts:
        times = "once" if max_restarts == 1 else f"{max_restarts} times"
        return Never(f"It has been launched again {times}, as often as the job allows.")
    return Again(min(FIRST_WAIT_S * 2 ** min(len(counted), 10), LONGEST_WAIT_S), len(counted) + 1)


def _repeats(present: AttemptEnd, before: AttemptEnd) -> bool:
    alike = present.cause is before.cause is Cause.EXCEPTION and present.digest == before.digest
    return alike and present.step == before.step


def _without_progress(attempts: list[AttemptEnd]) -> int:
    """How many attempts of a free restart, since the last that took the job further than any before."""
    reached, count = 0, 0
    for attempt in attempts:
        if attempt.step > reached:
            reached, count = attempt.step, 0
        else:
            count += attempt.retry in FREE_WITHIN_LIMITS
    return count


def _without_a_step(attempts: list[AttemptEnd]) -> int:
    """How many attempts of a free restart, at the end of the list, failed before they took a step."""
    count = 0
    for attempt in reversed(attempts):
        if attempt.retry not in FREE_WITHIN_LIMITS | {Retry.UNLIMITED} or attempt.step > attempt.first_step:
            break
        count += attempt.retry in FREE_WITHIN_LIMITS
    return count
