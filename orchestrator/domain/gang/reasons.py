"""Why a replica ended, in words that name it and its node. Shown on the job's page, in its events and in REST.

A reason is a sentence; the last lines of the log may follow.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from worker_agent.protocol.causes import Blame
from worker_agent.protocol.ending import KERNEL_SHOWED, LAST_LINES, Ending
from worker_agent.protocol.states import Cause, ReplicaStatus, Role

# A longer one is cut where it is stored.
REASON_CHARS = 8000
_NONE = Ending(cause=Cause.COMPLETED)


@dataclass(frozen=True)
class ReplicaFacts:
    """One replica as `decisions.decide` sees it. `ending` is None while it lives; `message` is what its node said of
    its end, for people. `node_takes` says whether that node takes a process in its place; `is_leaving` that it was
    asked from outside to leave, and still serves."""

    role: Role
    index: int
    node_name: str
    status: ReplicaStatus
    ending: Ending | None = None
    message: str = ""
    ended_at: datetime | None = None
    node_takes: bool = True
    is_leaving: bool = False
    replica_id: int = 0
    node_id: str | None = None

    @property
    def words(self) -> str:
        """`worker 1`."""
        return f"{self.role.value} {self.index}"

    @property
    def who(self) -> str:
        """`worker 1 on node-2`."""
        return f"{self.words} on {self.node_name}"

    @property
    def cause(self) -> Cause | None:
        """What it ended of."""
        return self.ending.cause if self.ending else None

    @property
    def end(self) -> Ending:
        """The ending; of a process that lives, one that says nothing against it."""
        return self.ending or _NONE

    @property
    def has_failed(self) -> bool:
        """Whether it has ended, and not because it was done."""
        return self.end.cause is not Cause.COMPLETED

    @property
    def is_culprit(self) -> bool:
        """Whether it may have failed by itself: not who lost a peer; of a gang that hung, whom the kernel showed."""
        if self.cause is Cause.HUNG:
            return bool(self.end.kernel_saw)
        return not (self.end.lost_peer and self.end.blame is Blame.PEER)


def reason_of(replica: ReplicaFacts) -> str:
    """One sentence with the cause, then the last lines of the log."""
    lines = replica.end.last_lines
    return f"{sentence_of(replica)}{LAST_LINES}{lines}" if lines else sentence_of(replica)


def sentence_of(replica: ReplicaFacts) -> str:
    """`worker 1 on node-2 failed: ValueError: bad shape`."""
    end = replica.end
    if end.cause is Cause.SIGNAL and end.how:
        return f"{replica.who} was killed by {end.how}."
    if end.cause is Cause.EXIT_CODE and end.how:
        return f"{replica.who} ended with {end.how}."
    return f"{replica.who} {end.row.verb}{f': {replica.message}' if replica.message else '.'}"


def adding(reason: str, sentence: str) -> str:
    """The reason with a sentence of ours after its own, before the lines of the log."""
    said, marker, lines = reason.partition(LAST_LINES)
    if said and sentence and not said.endswith((".", "!", "?", "…")):
        said = f"{said}."
    return f"{f'{said} {sentence}'.strip()}{marker}{lines}"


def sentence_in(reason: str) -> str:
    """The reason without the lines of the log."""
    return reason.partition(LAST_LINES)[0].strip()


def message_in_full(message: str, ending: Ending | None) -> str:
    """What a node said of an end, with what it saw."""
    if ending and ending.kernel_saw:
        message += f"{KERNEL_SHOWED}{ending.kernel_saw}"
    return f"{message}{LAST_LINES}{ending.last_lines}" if ending and ending.last_lines else message


def listed(names: Sequence[str]) -> str:
    """`worker 1`, or `chief 0, ps 0 and ps 1`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def they_are(names: Sequence[str]) -> str:
    """`worker 1 is`, or `chief 0, ps 0 and ps 1 are`."""
    return f"{listed(names)} {'is' if len(names) == 1 else 'are'}"
