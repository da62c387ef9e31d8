"""Why a replica ended, as data and in a sentence, from everything the shim knows. Pure."""

import re
import signal
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import msgspec

from worker_agent.protocol.causes import NODE_LEAVES
from worker_agent.protocol.codec import decode_record
from worker_agent.protocol.ending import Ending, Sender
from worker_agent.protocol.records import Failure, Phase, PhaseName
from worker_agent.protocol.states import SAVED_CODE, Cause, Kind

LAST_LINES = 8
# What a process is given to leave that was asked from outside: clouds give a machine that they take back 30 s or more.
PREEMPTED_GRACE_S = 25.0
# The exit status of a recipe's process that got SIGTERM: it takes the signal as a wish.
TERMINATED_CODE = 143

_MESSAGE_CHARS = 4000
# What TensorFlow writes of a peer that it lost, in native code or in a traceback, before it aborts the process, or the
# program leaves with a status of its own.
_LOST_A_PEER = re.compile(
    r"coordination ?service|Collective ops is aborted by|"
    r"StartAbort (UNAVAILABLE|ABORTED|CANCELLED|DEADLINE_EXCEEDED)|"
    r"tensorflow\.python\.framework\.errors_impl\.(Unavailable|Aborted|Cancelled|DeadlineExceeded)Error",
    re.IGNORECASE,
)


class StopRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`stop.json` in a replica's folder: that it is to end, why, and how long it may take. `at` in unix seconds.

    `save` asks the training process for a checkpoint first, `stacks` for the stacks of its threads.
    """

    at: float
    cause: Cause
    reason: str
    grace_s: float
    save: bool = False
    stacks: bool = False

    def yields_to(self, later: "StopRequest") -> bool:
        """Of two requests the first stays, but one to save gives way to one that waits less for it, or not at all."""
        return self.save and (not later.save or later.at + later.grace_s < self.at + self.grace_s)


class ExitStatus(NamedTuple):
    """How the training process ended for its parent: by itself with a code, or by a signal."""

    code: int | None
    signal: int | None


class LastWords(msgspec.Struct, frozen=True, kw_only=True):
    """What the training process itself said about its end, read from its stream: a failure, and its last phase.
    `leaving`: why it was to leave while it served on."""

    failure: Failure | None = None
    phase: str = ""
    leaving: Cause | None = None


def last_words(records: Iterable[bytes]) -> LastWords:
    """Among encoded records."""
    failure: Failure | None = None
    last = Phase(at=0, name="")
    for data in records:
        try:
            record = decode_record(data)
        except msgspec.DecodeError:
            continue
        if isinstance(record, Failure):
            failure = record
        elif isinstance(record, Phase):
            last = record
    leaving = Cause(last.detail) if last.name == PhaseName.LEAVING and last.detail in NODE_LEAVES else None
    return LastWords(failure=failure, phase=last.name, leaving=leaving)


def as_it_came_about(status: ExitStatus, *, stop: StopRequest | None, kind: Kind) -> ExitStatus:
    """A recipe that leaves at once because of a SIGTERM, though it was not asked to, or to save first, was ended by
    that signal. (A script's exit codes are its own.)"""
    if status.code == TERMINATED_CODE and kind is Kind.RECIPE and (stop is None or stop.save):
        return ExitStatus(code=None, signal=signal.SIGTERM)
    return status


def judge(
    status: ExitStatus,
    *,
    words: LastWords,
    stop: StopRequest | None,
    killed: bool,
    memory_kills: int,
    last_lines: list[str],
    kernel_saw: str = "",
) -> tuple[Ending, str]:
    """What ended it, and a sentence. `killed` says that its shim has sent it SIGKILL: of any other SIGKILL a stop is
    not the cause. What went wrong before a stop was asked for outranks the stop; a pause says nothing of a process that
    ended otherwise, unless it left without saving, or its time ran out: then it counts as paused, in words that say
    so, and no node or program is to blame."""
    sender = _sender(status, stop, killed=killed, memory_kills=memory_kills)
    seen: dict[str, Any] = {"sender": sender, "memory_kills": memory_kills, "kernel_saw": kernel_saw}
    end = partial(Ending, code=status.code, signal=status.signal, **seen)
    if status.code == SAVED_CODE and words.phase in (PhaseName.PAUSED, PhaseName.PREEMPTED):
        return _saved(end, words, stop)
    is_foreign = status.signal == signal.SIGKILL and not killed
    if stop is not None and (is_foreign or _failed_pausing(status, words, stop)):
        stop = None
    if words.failure is not None and (stop is None or words.failure.at < stop.at):
        told = words.failure.ending or Ending(cause=words.failure.cause)
        ending = msgspec.structs.replace(told, code=status.code, signal=status.signal, **seen)
        return ending, words.failure.message[:_MESSAGE_CHARS]
    if status.code == 0 and (stop is None or words.phase == PhaseName.DONE):
        return end(cause=Cause.COMPLETED), "It ran to its end."
    if stop is not None and words.leaving and stop.cause is Cause.PAUSED:
        return end(cause=words.leaving), "It continued to serve until its gang had saved."
    if stop is not None:
        return end(cause=stop.cause), _stopped(status, stop)
    if sender is Sender.KERNEL:
        return end(cause=Cause.OUT_OF_MEMORY), "The machine ran out of memory: the kernel ended the process (SIGKILL)."
    return _unexplained(end, status, "\n".join(last_lines)[-_MESSAGE_CHARS:])


def _unexplained(end: partial[Ending], status: ExitStatus, last_lines: str) -> tuple[Ending, str]:
    """The end of a process that said nothing of it; the last lines of its output may."""
    end = partial(end, last_lines=last_lines)
    if status.signal == signal.SIGTERM:
        return end(cause=Cause.PREEMPTED), "A SIGTERM that Trainyard did not send ended it."
    lost_peer = status.signal in (None, signal.SIGABRT) and _LOST_A_PEER.search(last_lines) is not None
    if status.signal is None:
        ending = end(cause=Cause.EXIT_CODE, lost_peer=lost_peer)
        return ending, f"The process ended with {ending.how}."
    ending = end(cause=Cause.SIGNAL, lost_peer=lost_peer)
    return ending, f"The process was killed by {ending.how}."


def _sender(status: ExitStatus, stop: StopRequest | None, *, killed: bool, memory_kills: int) -> Sender | None:
    if status.signal == signal.SIGKILL:
        return Sender.TRAINYARD if killed else Sender.KERNEL if memory_kills else Sender.OUTSIDE
    if status.signal == signal.SIGTERM:
        return Sender.OUTSIDE if stop is None or stop.cause is Cause.PREEMPTED else Sender.TRAINYARD
    return None


def _saved(end: partial[Ending], words: LastWords, stop: StopRequest | None) -> tuple[Ending, str]:
    """Of a gang that agreed to leave, some may not have been asked, or not yet."""
    if words.phase == PhaseName.PREEMPTED:
        said = "It got a SIGTERM that Trainyard did not send, saved a checkpoint and left."
        return end(cause=Cause.PREEMPTED, saved=True), said
    cause = stop.cause if stop is not None and stop.save else Cause.PAUSED
    return end(cause=cause, saved=True), "It saved a checkpoint and left."


def _failed_pausing(status: ExitStatus, words: LastWords, stop: StopRequest) -> bool:
    """Whether a process that did not save for a pause ended by itself, and not by the signals of that request."""
    is_pause = stop.save and stop.cause is Cause.PAUSED
    return is_pause and (words.failure is not None or status.signal not in (signal.SIGTERM, signal.SIGKILL))


def _stopped(status: ExitStatus, stop: StopRequest) -> str:
    if stop.save and status.signal == signal.SIGKILL:
        return f"It had not saved and left {stop.grace_s:g} s after it was asked to, so it was killed (SIGKILL)."
    if stop.save:
        return "It left without saving."
    how = f" It had not ended {stop.grace_s:g} s after SIGTERM, so it was killed."
    return f"{stop.reason or 'It was stopped.'}{how if status.signal == signal.SIGKILL else ''}"
