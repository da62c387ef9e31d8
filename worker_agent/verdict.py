"""Why a replica ended: one cause and one message in words, from everything the shim knows. Pure."""

import signal
from collections.abc import Iterable

import msgspec

from worker_agent.protocol.codec import decode_record
from worker_agent.protocol.records import Failure, Phase
from worker_agent.protocol.states import Cause, Kind

LAST_LINES = 8
# The exit status of a training process that has saved for a pause (and says so as its last phase).
PAUSED_CODE = 75
PAUSED_PHASE = "paused"
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
        """Of two requests the first stays, but one to save gives way to one that does not wait for it."""
        return self.save and not later.save


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How the training process ended: exit `code`, or the `signal` that ended it."""

    code: int | None
    signal: int | None


class LastWords(msgspec.Struct, frozen=True, kw_only=True):
    """What the training process itself said about its end, read from its stream."""

    failure: Failure | None = None
    done: bool = False
    paused: bool = False


def last_words(records: Iterable[bytes]) -> LastWords:
    """The last failure, and whether the last phase is "done" or "paused", among encoded records."""
    failure: Failure | None = None
    phase = ""
    for data in records:
        try:
            record = decode_record(data)
        except msgspec.DecodeError:
            continue
        if isinstance(record, Failure):
            failure = record
        elif isinstance(record, Phase):
            phase = record.name
    return LastWords(failure=failure, done=phase == "done", paused=phase == PAUSED_PHASE)


def taken(ending: Ending, *, stop: StopRequest | None, kind: Kind) -> Ending:
    """The ending as it came about: a recipe that leaves because of a SIGTERM, though nothing was asked of it, was ended
    by that signal. (A script's exit codes are its own.)"""
    if ending.code == TERMINATED_CODE and kind is Kind.RECIPE and stop is None:
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
    the cause. What went wrong before a stop was asked for outranks the stop; a request to save says nothing of a
    process that ended otherwise, unless it ran out: then the process counts as paused, in words that say it did not
    save, and no node or program is to blame."""
    if ending.code == PAUSED_CODE and words.paused:  # of a gang that agreed, some may not have been asked yet
        return Cause.PAUSED, "It saved a checkpoint and left."
    unsaved = _unsaved(ending, stop, killed=killed) if stop is not None and stop.save else ""
    if stop is not None and (stop.save or (ending.signal == signal.SIGKILL and not killed)):
        stop = None
    if words.failure is not None and (stop is None or words.failure.at < stop.at):
        return words.failure.cause, words.failure.message[:_MESSAGE_CHARS]
    if ending.code == 0 and (stop is None or words.done):
        return Cause.COMPLETED, "It ran to its end."
    if stop is not None:
        return stop.cause, _stopped(ending, stop)
    if unsaved:
        return Cause.PAUSED, unsaved
    if ending.signal is not None:
        return _signalled(ending.signal, killed_for_memory=killed_for_memory, last_lines=last_lines)
    return Cause.EXIT_CODE, _with_lines(f"The process ended with exit code {ending.code}.", last_lines)


def _unsaved(ending: Ending, stop: StopRequest, *, killed: bool) -> str:
    """That this request to save ended the process instead, in words; "" where it did not."""
    if ending.signal == signal.SIGTERM:
        return "It was ended by the SIGTERM that asked it to save."
    if ending.signal == signal.SIGKILL and killed:
        return f"It had not saved and left {stop.grace_s:g} s after it was asked to, so it was killed (SIGKILL)."
    return ""


def _stopped(ending: Ending, stop: StopRequest) -> str:
    how = f" It had not ended {stop.grace_s:g} s after SIGTERM, so it was killed."
    return f"{stop.reason or 'It was stopped.'}{how if ending.signal == signal.SIGKILL else ''}"


def _signalled(number: int, *, killed_for_memory: bool, last_lines: list[str]) -> tuple[Cause, str]:
    if number == signal.SIGKILL and killed_for_memory:
        return Cause.OUT_OF_MEMORY, "The machine ran out of memory: the kernel ended the process (SIGKILL)."
    message = f"The process was killed by signal {number} ({_signal_name(number)})."
    if number == signal.SIGTERM:
        message = "The process was ended by a SIGTERM that Trainyard did not send."
    return Cause.SIGNAL, _with_lines(message, last_lines)


def _with_lines(message: str, last_lines: list[str]) -> str:
    if not last_lines:
        return message
    return f"{message} The last lines it wrote:\n" + "\n".join(last_lines)[-_MESSAGE_CHARS:]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
