"""From an exception to what ended the process, as data and in one sentence with the user's own line.

What TensorFlow raised is told by its class and status code; where only its words tell, they are looked for here, and
nowhere else.
"""

import contextlib
import io
import re
import sys
import textwrap
import traceback
from pathlib import Path
from time import time
from typing import Any

import msgspec

from worker_agent.protocol.ending import Ending, digest_of
from worker_agent.protocol.plan import SHARED_FOLDER
from worker_agent.protocol.records import Failure
from worker_agent.protocol.states import Cause
from worker_agent.trainer.outcome import TrainingFailed

TRACEBACK_CHARS = 100_000
SENTENCE_CHARS = 500

# Status codes of gRPC, which TensorFlow's errors carry.
_CANCELLED, _UNKNOWN, _DEADLINE_EXCEEDED, _NOT_FOUND, _RESOURCE_EXHAUSTED = 1, 2, 4, 5, 8
_ABORTED, _INTERNAL, _UNAVAILABLE = 10, 13, 14
# What is raised in a healthy process when another one of its gang ended.
_PEER_CODES = {_CANCELLED, _DEADLINE_EXCEEDED, _ABORTED, _UNAVAILABLE}
_PEER_WORDS = re.compile(r"Connection reset by peer|Socket closed|failed to connect to all addresses")
# Of a gang's processes that answer no more TensorFlow writes the names below these words, one a line.
_HEARTBEAT_WORDS = "(stopped sending heartbeats):"
_SILENT_WORDS = re.compile(rf"{re.escape(_HEARTBEAT_WORDS)}|Deadline Exceeded")
_TASK = re.compile(r"/job:(\w+)/replica:\d+/task:(\d+)$")
_MEMORY_CODES = {_RESOURCE_EXHAUSTED, _INTERNAL, _UNKNOWN}
_MEMORY_WORDS = re.compile(r"(?i)oom when allocating|out.of.memory|failed to allocate|dst tensor is not init")
_PORT_WORDS = "Could not start gRPC server"
_TPU_FILES = re.compile(r"/(tpu_cluster_resolver|tpu_strategy_util)\.py$")
# Another process looked for a file below its own folder.
_RELATIVE_PATH = re.compile(r"^From /job:\S+:\n(?!/)[^\n:]*; No such file or directory", re.MULTILINE)
_SHARE_A_FOLDER = (
    "each process has a folder of its own. Let all write to one that they share: the path in the variable "
    f"{SHARED_FOLDER}, which is set where the cluster has a shared folder, or an absolute path that all its nodes share"
)
# How the words of an error are laid out.
_ORIGIN = re.compile(r"From /job:\S+:$")
_AUTOGRAPH_WORDS = "in user code:"
_ERROR_LINE = re.compile(r"[\w.]*(Error|Exception|Interrupt)\b.*:")
_FRAME_LINE = re.compile(r'File "(.+)", line (\d+), in (\S+)')
_GRAPH_WORDS = "Graph execution error"
# What TensorFlow writes between these words and its reason: where the node was defined.
_GRAPH_PLACES = re.compile(r'File "|Detected at node|<stack traces|Node: |\d+ root error')
# What stands before and around the words: the graph's function, and a terminal's colours.
_ORNAMENT = re.compile(r"\{\{function_node [^}]*\}\}\s*|\x1b\[[0-9;]*m")
# What the interpreter adds to the words of an AttributeError or NameError.
_SUGGESTION = re.compile(r"\. Did you mean: '[^'\n]*'\?(?=\n\Z)")
_TRACEBACK_LINE = "Traceback (most recent call last):"
_KERAS_WORDS = "Exception encountered when calling"
_KERAS_INNER = "Error encountered:"


def failure_of(error: BaseException, *, code: Path, gang_size: int) -> Failure:
    """The record for `error`, raised by a program that lives in the folder `code`."""
    if isinstance(error, TrainingFailed):
        # Its sentence says all; a traceback would point at the trainer's own lines.
        return record_of(Ending(cause=error.cause, remedy=error.remedy), error.message)
    text = _as_python_shows(error)[-TRACEBACK_CHARS:]
    raised = _errors_of_tensorflow(error)
    if any(each.error_code == _UNKNOWN and _PORT_WORDS in str(each) for each in raised):
        ending = Ending(cause=Cause.PORT_TAKEN)
        return record_of(ending, "TensorFlow could not listen on its port: another program took it.", text)
    cause = Cause.EXCEPTION
    if isinstance(error, MemoryError) or any(map(_ran_out_of_memory, raised)):
        cause = Cause.OUT_OF_MEMORY
    lost_peer = gang_size > 1 and any(map(_lost_a_peer, raised))
    what, file, line, function = _what_and_where(error, code)
    if meant := _SUGGESTION.search(text):
        what += meant[0]
    where = f" (in {file}, line {line}{f', {function}' if function else ''})" if file else ""
    ending = Ending(
        cause=cause,
        lost_peer=lost_peer,
        silent=lost_peer and any(map(_is_of_silence, raised)),
        exception=type(error).__qualname__,
        module=type(error).__module__,
        file=file,
        line=line,
        missing=_missing_module(error),
        remedy=_SHARE_A_FOLDER if any(map(_has_a_folder_of_its_own, raised)) else "",
    )
    return record_of(ending, f"{'A peer went away: ' if lost_peer else ''}{what}{where}", text)


def record_of(ending: Ending, message: str, traceback_text: str = "") -> Failure:
    """The record of an end that this process knows of, with its sentence."""
    message = message.replace("\0", "")  # which no database takes
    ending = msgspec.structs.replace(ending, digest=digest_of(message))
    return Failure(at=time(), cause=ending.cause, message=message, traceback=traceback_text, ending=ending)


def is_of_tpu(error: BaseException) -> bool:
    """True where TensorFlow was looking for a TPU, or was about to initialise it."""
    return any(_TPU_FILES.search(frame.filename) for frame in traceback.extract_tb(error.__traceback__))


def tpu_refusal(error: BaseException, name: str) -> TrainingFailed:
    """Why the TPU of that name ("": the machine's own) cannot be used, and what to do."""
    if isinstance(error, ValueError | OSError) and not name:
        return TrainingFailed(
            "This node has no TPU", remedy="name one in the job, or choose a strategy for the devices that the node has"
        )
    reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    said = textwrap.shorten(reason.rstrip("."), 160, placeholder="…")
    return TrainingFailed(
        f"The TPU {name or 'of this machine'} cannot be used ({said})",
        remedy="check its name, and that this TensorFlow was built for TPUs",
    )


def tpu_silent(name: str, limit_s: float, reason: str = "") -> TrainingFailed:
    """That the TPU has not answered in time: it is no peer of a gang, and nothing is launched again for it."""
    why = f" ({reason})" if reason else ""
    return TrainingFailed(
        f"The TPU {name or 'of this machine'} did not answer within {limit_s:g} s{why}",
        Cause.LAUNCH_REFUSED,
        remedy="check its name or address, that it is running, and that this node can reach it",
    )


def _as_python_shows(error: BaseException) -> str:
    """The interpreter's own traceback: unlike the module's, it says what name may have been meant (before 3.12)."""
    with contextlib.redirect_stderr(io.StringIO()) as shown:
        sys.__excepthook__(type(error), error, error.__traceback__)
    return shown.getvalue()


def _errors_of_tensorflow(error: BaseException | None) -> list[Any]:
    """`error` and those that it was raised from or in place of, as far as they are TensorFlow's. (What was raised while
    another one was handled is a fault of its own.)"""
    errors: Any = sys.modules.get("tensorflow.python.framework.errors_impl")
    if errors is None or error is None:
        return []
    replaced = error.__context__ if error.__suppress_context__ else None
    inner = getattr(error, "original_exception", None) or error.__cause__ or replaced
    return [*([error] if isinstance(error, errors.OpError) else []), *_errors_of_tensorflow(inner)]


def _missing_module(error: BaseException) -> str:
    """The module that is not installed. Of a package that is there, `name` has a dot: it has another version."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    return "" if name is None or "." in name else name


def _has_a_folder_of_its_own(error: Any) -> bool:
    return error.error_code == _NOT_FOUND and bool(_RELATIVE_PATH.search(str(error)))


def _lost_a_peer(error: Any) -> bool:
    return error.error_code in _PEER_CODES or bool(_PEER_WORDS.search(str(error)))


def _is_of_silence(error: Any) -> bool:
    return error.error_code == _DEADLINE_EXCEEDED or bool(_SILENT_WORDS.search(str(error)))


def _ran_out_of_memory(error: Any) -> bool:
    return error.error_code in _MEMORY_CODES and bool(_MEMORY_WORDS.search(str(error)))


def _what_and_where(error: BaseException, code: Path) -> tuple[str, str, int, str]:
    """`ValueError: bad shape`, and the deepest line that is the user's: its file, number and function."""
    lines = [line.strip() for line in _ORNAMENT.sub("", str(error)).splitlines() if line.strip()]
    what = f"{type(error).__name__}: {_reason(lines)}" if lines else type(error).__name__
    frames = [(frame.filename, frame.lineno or 0, frame.name) for frame in traceback.extract_tb(error.__traceback__)]
    if _AUTOGRAPH_WORDS in lines[:1] or _TRACEBACK_LINE in lines:
        # TensorFlow tells the user's frames, and the error that was raised there, in the text.
        what = next((line for line in reversed(lines) if _ERROR_LINE.match(line)), what)
        frames += [(found[1], int(found[2]), found[3]) for line in lines if (found := _FRAME_LINE.match(line))]
    if len(what) > SENTENCE_CHARS:
        what = what[:SENTENCE_CHARS] + "…"
    for filename, line, name in reversed(frames):
        if (path := Path(filename)).is_relative_to(code):
            return what, str(path.relative_to(code)), line, "" if name == "None" else name  # as traced lambdas have it
    return what, "", 0, ""


def _reason(lines: list[str]) -> str:
    """The line that says why, of an error's text; TensorFlow and Keras begin theirs with where."""
    if lines[0].startswith(_GRAPH_WORDS):
        lines = [line for line in lines[1:] if not _GRAPH_PLACES.match(line)] or lines
    if _ORIGIN.match(lines[0]) and len(lines) > 1:
        return f"{lines[0]} {lines[1]}"
    silent = [f"{found[1]} {found[2]}" for line in lines if (found := _TASK.match(line))]
    if lines[0].endswith(_HEARTBEAT_WORDS) and silent:
        return f"{' and '.join(sorted(silent))} stopped sending heartbeats"
    if lines[0].startswith(_KERAS_WORDS) and len(lines) > 1:
        inner = next((place for place, line in enumerate(lines) if line.endswith(_KERAS_INNER)), 0)
        return lines[min(inner + 1, len(lines) - 1)]
    return lines[0]
