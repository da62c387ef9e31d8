"""What ended a process, as data: from the trainer, which raised, through the shim, which saw it end, to the rules that
decide what becomes of its job. The sentences beside it (`message`, `reason`) are for people; no rule reads them.
"""

import hashlib
from enum import StrEnum
from signal import SIGABRT, SIGKILL, Signals

import msgspec

from worker_agent.protocol.causes import NODE_LEAVES, Blame, Row, row_of
from worker_agent.protocol.states import SAVED_CODE, Cause

# What stands in a text before what the kernel showed, and before the last lines of a log.
KERNEL_SHOWED = " The kernel's view: "
LAST_LINES = " The last lines it wrote:\n"


class Sender(StrEnum):
    """Who sent the signal that ended a process, as far as it is known."""

    TRAINYARD = "trainyard"
    KERNEL = "kernel"
    OUTSIDE = "outside"


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one process: its exit `code`, or the `signal` that ended it; neither where who watched over it was
    killed as well.

    `saved`: it left when its gang had agreed on a step and saved it. `lost_peer`: another process of its gang had
    ended, or (`silent`) answered no more. `exception` and `module` name the type that it raised, `file` and `line` the
    deepest place in the user's program; two that said the same have one `digest`. `memory_kills` is how often the
    kernel had just ended a process for memory, `kernel_saw` what it showed of one that hung. `last_lines` are of its
    output. `remedy` is what to do, where that is known better than from the cause; `missing` the module that the
    program imports and its node does not have.
    """

    cause: Cause
    code: int | None = None
    signal: int | None = None
    sender: Sender | None = None
    saved: bool = False
    lost_peer: bool = False
    silent: bool = False
    exception: str = ""
    module: str = ""
    file: str = ""
    line: int = 0
    digest: str = ""
    memory_kills: int = 0
    kernel_saw: str = ""
    last_lines: str = ""
    remedy: str = ""
    missing: str = ""

    @property
    def blame(self) -> Blame:
        """Who made it end. A script that leaves with a status of its own has failed by itself, whatever it lost."""
        if self.lost_peer and self.cause in (Cause.EXCEPTION, Cause.SIGNAL):
            return Blame.PEER
        if self.cause is Cause.SIGNAL and self.signal in (SIGKILL, None):
            return Blame.MACHINE
        return row_of(self.cause).blame

    @property
    def row(self) -> Row:
        """What the table of causes says of it."""
        return row_of(self.cause, self.blame)

    @property
    def may_follow(self) -> bool:
        """Whether the end of another process may explain it. Why a process aborted itself is not always known."""
        return self.lost_peer or self.row.may_follow or (self.cause is Cause.SIGNAL and self.signal == SIGABRT)

    @property
    def how(self) -> str:
        """`exit code 3`, or `signal 9 (SIGKILL)`; "" where neither is known."""
        if self.signal is not None:
            name = Signals(self.signal).name if self.signal in set(Signals) else "unknown signal"
            return f"signal {self.signal} ({name})"
        return "" if self.code is None else f"exit code {self.code}"


def digest_of(message: str) -> str:
    """What tells messages apart, without their words."""
    return hashlib.sha256(message.encode()).hexdigest()[:16]


def of_version_before(cause: Cause, code: int | None, signal: int | None, message: str) -> tuple[Ending, str]:
    """The ending that a version of Trainyard without endings told in its message, and what remains to be said."""
    said, _, kernel_saw = message.partition(KERNEL_SHOWED)
    said, _, last_lines = said.partition(LAST_LINES)
    lower = message.lower()
    told_so = cause is Cause.EXCEPTION and said.startswith("A peer went away")
    aborted = cause is Cause.SIGNAL and signal == SIGABRT and "coordination service" in lower
    ending = Ending(
        cause=cause,
        code=code,
        signal=signal,
        saved=code == SAVED_CODE and cause in (Cause.PAUSED, *NODE_LEAVES),
        lost_peer=told_so or aborted,
        silent=told_so and ("heartbeat" in lower or "deadline exceeded" in lower),
        digest=digest_of(said),
        kernel_saw=kernel_saw,
        last_lines=last_lines,
    )
    return ending, said
