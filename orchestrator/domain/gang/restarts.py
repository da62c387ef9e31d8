"""Whether a job is launched again after an attempt has failed, and how soon. Pure; `failure.decide` asks.

What the machines did (a node lost, a process killed from outside, a port taken, processes that lost one another) is not
the program's fault: such a restart costs the user nothing and is made at once, but not without end. What the program
did is tried again only as often as the job asks for (`max_restarts`), each time after a longer wait. The rest is never
tried again.
"""

import signal
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.domain.gang.reasons import LAST_LINES, ReplicaFacts, lost_a_peer
from worker_agent.protocol.states import Cause

MOST_IN_VAIN = 10
MOST_FRUITLESS = 3
FIRST_WAIT_S = 10.0
LONGEST_WAIT_S = 300.0
MACHINES_DO = frozenset(
    {
        *(Cause.NODE_LOST, Cause.LEASE_LOST, Cause.AGENT_SHUTDOWN, Cause.PREEMPTED),
        *(Cause.PORT_TAKEN, Cause.RENDEZVOUS_TIMEOUT, Cause.HUNG),
    }
)
PROGRAMS_DO = frozenset({Cause.EXCEPTION, Cause.EXIT_CODE, Cause.OUT_OF_MEMORY, Cause.SIGNAL})
# Causes of the machines that say nothing against the node of the process that ended so. (A lease runs out on a node
# that the control plane has not lost where Redis itself was silent.)
BLAMELESS = frozenset({Cause.AGENT_SHUTDOWN, Cause.PREEMPTED, Cause.RENDEZVOUS_TIMEOUT, Cause.LEASE_LOST})


class Blame(StrEnum):
    """Whose fault the end of an attempt was; "" where it is never tried again."""

    MACHINES = "machines"
    PROGRAM = "program"
    NOBODY = ""


@dataclass(frozen=True)
class Ended:
    """An attempt at its end. `step` is the last it reached, `began_at` the one it began with; `said` the message of
    the process that it failed of, without lines of the log; `lost_peer` says that this one had only lost a peer."""

    number: int
    cause: Cause
    blame: Blame
    step: int
    began_at: int
    said: str = ""
    lost_peer: bool = False


@dataclass(frozen=True)
class Again:
    """Launch once more, in `wait_s` seconds. `number` counts the program's restarts; 0 for the machines'."""

    wait_s: float = 0.0
    number: int = 0


@dataclass(frozen=True)
class Never:
    """Not launched again. `why` is a sentence, or "" where nothing of the kind ever is."""

    why: str = ""


def blame_of(root: ReplicaFacts) -> Blame:
    """Whose fault it was that this process, and so its gang, ended."""
    return blame_for(root.cause, root.signal, root.message)


def blame_for(cause: Cause | None, number: int | None, message: str) -> Blame:
    """Whose fault an end of this cause is; `number` is the signal's, None where who watched over it was killed too.

    Where the first to fail had only lost a peer, nobody failed by itself: they could not reach one another.
    """
    if cause in MACHINES_DO or (cause is Cause.SIGNAL and number in (signal.SIGKILL, None)):
        return Blame.MACHINES
    if lost_a_peer(cause, number, message):
        return Blame.MACHINES
    return Blame.PROGRAM if cause in PROGRAMS_DO else Blame.NOBODY


def ended_of(root: ReplicaFacts, *, number: int, step: int, began_at: int) -> Ended:
    """The end of launch `number`, or of a part of it, that failed of this process."""
    lost = lost_a_peer(root.cause, root.signal, root.message)
    return Ended(number, root.cause or Cause.EXIT_CODE, blame_of(root), step, began_at, said_by(root), lost)


def said_by(root: ReplicaFacts) -> str:
    """What its node said of the end of a process, without the lines of its log."""
    return root.message.partition(LAST_LINES)[0].strip()


def verdict(present: Ended, earlier: tuple[Ended, ...], *, max_restarts: int) -> Again | Never:
    """What follows from the end of the present attempt, after the `earlier` ones of the job, first one first."""
    if present.blame is Blame.MACHINES:
        return _after_the_machines(present, earlier)
    if present.blame is Blame.PROGRAM and max_restarts:
        return _after_the_program(present, earlier, max_restarts)
    return Never()


def _after_the_machines(present: Ended, earlier: tuple[Ended, ...]) -> Again | Never:
    if present.cause is Cause.AGENT_SHUTDOWN:  # somebody's wish, who starts it again
        return Again()
    alike = [each for each in earlier if each.blame is Blame.MACHINES and _is_alike(each, present)]
    before = alike[-1] if alike else None
    if before is not None and present.cause is Cause.HUNG:
        return Never(f"So it was in launch {before.number}.")
    if before is not None and present.step <= before.step:
        if present.lost_peer:
            return Never(
                f"Nobody failed by itself, as in launch {before.number}: look whether its nodes can reach one another."
            )
        if present.cause is Cause.RENDEZVOUS_TIMEOUT:
            return Never(f"So it was in launch {before.number}, and it has come no further.")
    if _fruitless([*earlier, present]) >= MOST_FRUITLESS:
        return Never(f"This was launch {MOST_FRUITLESS} in a row that took no step.")
    if _in_vain([*earlier, present]) >= MOST_IN_VAIN:
        again = f"launched again {MOST_IN_VAIN} times after such failures"
        return Never(f"It has been {again}, and came no further than step {max(each.step for each in earlier)}.")
    return Again()


def _is_alike(one: Ended, other: Ended) -> bool:
    return one.lost_peer if other.lost_peer else one.cause is other.cause


def _after_the_program(present: Ended, earlier: tuple[Ended, ...], max_restarts: int) -> Again | Never:
    counted = [each for each in earlier if each.blame is Blame.PROGRAM]
    if counted and _repeats(present, counted[-1]):
        return Never(
            f"The same exception at the same step ({present.step}) as in launch {counted[-1].number}: "
            "it would come again, so the job is not tried once more."
        )
    if len(counted) >= max_restarts:
        times = "once" if max_restarts == 1 else f"{max_restarts} times"
        return Never(f"It has been tried again {times}, as often as it may.")
    return Again(min(FIRST_WAIT_S * 2 ** min(len(counted), 10), LONGEST_WAIT_S), len(counted) + 1)


def _repeats(present: Ended, before: Ended) -> bool:
    alike = present.cause is before.cause is Cause.EXCEPTION and present.said == before.said
    return alike and present.step == before.step


def _in_vain(attempts: list[Ended]) -> int:
    """How many that the machines ended, since the last that took the job further than any before."""
    reached, count = 0, 0
    for attempt in attempts:
        if attempt.step > reached:
            reached, count = attempt.step, 0
        else:
            count += attempt.blame is Blame.MACHINES and attempt.cause is not Cause.AGENT_SHUTDOWN
    return count


def _fruitless(attempts: list[Ended]) -> int:
    """How many attempts at the end of the list failed of the machines before they took a step."""
    count = 0
    for attempt in reversed(attempts):
        if attempt.blame is not Blame.MACHINES or attempt.step > attempt.began_at:
            break
        count += attempt.cause is not Cause.AGENT_SHUTDOWN
    return count
