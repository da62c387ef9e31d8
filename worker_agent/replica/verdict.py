"""Why a replica ended: one cause and one message in words, from everything the shim knows. Pure."""

import signal
from collections.abc import Iterable

import msgspec

from worker_agent.protocol.codec import decode_record
from worker_agent.protocol.records import LEAVING_PHASE, Failure, Phase
from worker_agent.protocol.states import NODE_LEAVES, SAVED_CODE, Cause, Kind

LAST_LINES = 8
# How a training process that has saved and left names its last phase; the second where a SIGTERM from outside asked it.
PAUSED_PHASE = "paused"
PREEMPTED_PHASE = "preempted"
# What a process is given to leave that was asked from outside: clouds give a machine that they take back 30 s or more.
PREEMPTED_GRACE_S = 25.0
# The exit status of a recipe's process that got SIGTERM: it takes the signal as a wish.
TERMINATED_CODE = 143

_MESSAGE_CHARS = 4000


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


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How the training process ended: exit `code`, or the `signal` that ended it."""

    code: int | None
    signal: int | None


class LastWords(msgspec.Struct, frozen=True, kw_only=True):
    """What the training process itself said about its end, read from its stream. `leaving`: why it was to leave while
    it served on."""

    failure: Failure | None = None
    done: bool = False
    paused: bool = False
    preempted: bool = False
    leaving: Cause | None = None


def last_words(records: Iterable[bytes]) -> LastWords:
    """The last failure, and whether the last phase is one of those that say how it ends, among encoded records."""
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
    return LastWords(
        failure=failure,
        done=last.name == "done",
        paused=last.name == PAUSED_PHASE,
        preempted=last.name == PREEMPTED_PHASE,
        leaving=Cause(last.detail) if last.name == LEAVING_PHASE and last.detail in NODE_LEAVES else None,
    )


def taken(ending: Ending, *, stop: StopRequest | None, kind: Kind) -> Ending:
    """The ending as it came about: a recipe that leaves at once because of a SIGTERM, though it was not asked to, or
    to save first, was ended by that signal. (A script's exit codes are its own.)"""
    if ending.code == TERMINATED_CODE and kind is Kind.RECIPE and (stop is None or stop.save):
        return Ending(code=None, signal=signal.SIGTERM)
    return ending


def judge(
    ending: Ending,
    *,
    words: LastWords,
    stop: StopRequest | None,
    killed: bool,
    killed_for_memory: bool,
    last_lines: list[str],
) -> tuple[Cause, str]:
    """The cause and its message. `killed` says that its shim has sent it SIGKILL: of any other SIGKILL a stop is not
    the cause. What went wrong before a stop was asked for outranks the stop; a pause says nothing of a process that
    ended otherwise, unless it left without saving, or its time ran out: then it counts as paused, in words that say so,
    and no node or program is to blame."""
    if ending.code == SAVED_CODE and (words.paused or words.preempted):
        return _saved(words, stop)
    is_foreign = ending.signal == signal.SIGKILL and not killed
    if stop is not None and (is_foreign or _failed_pausing(ending, words, stop)):
        stop = None
    if words.failure is not None and (stop is None or words.failure.at < stop.at):
        return words.failure.cause, words.failure.message[:_MESSAGE_CHARS]
    if ending.code == 0 and (stop is None or words.done):
        return Cause.COMPLETED, "It ran to its end."
    if stop is not None and words.leaving and stop.cause is Cause.PAUSED:
        return words.leaving, "It served on until its gang had saved."
    if stop is not None:
        return stop.cause, _stopped(ending, stop)
    if ending.signal is not None:
        return _signalled(ending.signal, killed_for_memory=killed_for_memory, last_lines=last_lines)
    return Cause.EXIT_CODE, _with_lines(f"The process ended with exit code {ending.code}.", last_lines)


def _saved(words: LastWords, stop: StopRequest | None) -> tuple[Cause, str]:
    """Of a gang that agreed to leave, some may not have been asked, or not yet."""
    if words.preempted:
        return Cause.PREEMPTED, "It got a SIGTERM that Trainyard did not send, saved a checkpoint and left."
    return (stop.cause if stop is not None and stop.save else Cause.PAUSED), "It saved a checkpoint and left."


def _failed_pausing(ending: Ending, words: LastWords, stop: StopRequest) -> bool:
    """Whether a process that did not save for a pause ended by itself, and not by the signals of that request."""
    is_pause = stop.save and stop.cause is Cause.PAUSED
    return is_pause and (words.failure is not None or ending.signal not in (signal.SIGTERM, signal.SIGKILL))


def _stopped(ending: Ending, stop: StopRequest) -> str:
    if stop.save and ending.signal == signal.SIGKILL:
        return f"It had not saved and left {stop.grace_s:g} s after it was asked to, so it was killed (SIGKILL)."
    if stop.save:
        return "It left without saving."
    how = f" It had not ended {stop.grace_s:g} s after SIGTERM, so it was killed."
    return f"{stop.reason or 'It was stopped.'}{how if ending.signal == signal.SIGKILL else ''}"


def _signalled(number: int, *, killed_for_memory: bool, last_lines: list[str]) -> tuple[Cause, str]:
    if number == signal.SIGKILL and killed_for_memory:
        return Cause.OUT_OF_MEMORY, "The machine ran out of memory: the kernel ended the process (SIGKILL)."
    if number == signal.SIGTERM:
        return Cause.PREEMPTED, _with_lines("A SIGTERM that Trainyard did not send ended it.", last_lines)
    return Cause.SIGNAL, _with_lines(f"The process was killed by signal {number} ({_signal_name(number)}).", last_lines)


def _with_lines(message: str, last_lines: list[str]) -> str:
    if not last_lines:
        return message
    return f"{message} The last lines it wrote:\n" + "\n".join(last_lines)[-_MESSAGE_CHARS:]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
