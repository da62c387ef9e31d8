"""From an exception to what a person reads: one sentence with the user's own line, and a traceback for the log."""

import re
import textwrap
import traceback
from pathlib import Path
from time import time

from worker_agent.protocol.records import Failure
from worker_agent.protocol.states import Cause
from worker_agent.trainer.outcome import TrainingFailed

TRACEBACK_CHARS = 100_000
SENTENCE_CHARS = 500

# What TensorFlow raises in a healthy process when another one of its gang ended.
_PEER_ERRORS = {"UnavailableError", "AbortedError", "CancelledError", "DeadlineExceededError"}
_PEER_WORDS = ("Connection reset by peer", "Socket closed", "failed to connect to all addresses")
_AUTOGRAPH_WORDS = "in user code:"
_ERROR_LINE = re.compile(r"[\w.]*(Error|Exception|Interrupt)\b.*:")
_FRAME_LINE = re.compile(r'File "(.+)", line (\d+), in (\S+)')
_GRAPH_WORDS = "Graph execution error"
# Of a gang's processes that answer no more TensorFlow writes the names below these words, one a line.
_SILENT_WORDS = "(stopped sending heartbeats):"
_TASK = re.compile(r"/job:(\w+)/replica:\d+/task:(\d+)$")
# What TensorFlow writes between these words and its reason: where the node was defined.
_GRAPH_PLACES = re.compile(r'File "|Detected at node|<stack traces|Node: |\d+ root error')
_TPU_FILES = re.compile(r"/(tpu_cluster_resolver|tpu_strategy_util)\.py$")
_PORT_WORDS = "Could not start gRPC server"
_MEMORY_ERRORS = {"ResourceExhaustedError", "InternalError", "UnknownError", "XlaRuntimeError"}
_MEMORY_WORDS = (
    "oom when allocating",
    "out of memory",
    "out_of_memory",
    "failed to allocate",
    "dst tensor is not init",
)
# What stands before and around the words: the graph's function, and a terminal's colours.
_ORNAMENT = re.compile(r"\{\{function_node [^}]*\}\}\s*|\x1b\[[0-9;]*m")
_TRACEBACK_LINE = "Traceback (most recent call last):"
_KERAS_WORDS = "Exception encountered when calling"
_KERAS_INNER = "Error encountered:"


def failure_of(error: BaseException, *, code: Path, gang_size: int) -> Failure:
    """The record for `error`, raised by a program that lives in the folder `code`."""
    text = "".join(traceback.format_exception(error))[-TRACEBACK_CHARS:]
    if isinstance(error, TrainingFailed):
        # Its sentence says all; a traceback would point at the trainer's own lines.
        return Failure(at=time(), cause=error.cause, message=error.message)
    if _PORT_WORDS in str(error):
        message = "TensorFlow could not listen on its port: somebody took it."
        return Failure(at=time(), cause=Cause.PORT_TAKEN, message=message, traceback=text)
    sentence = _sentence(error, code)
    if gang_size > 1 and is_peer_loss(error):
        sentence = f"A peer went away: {sentence}"
    cause = Cause.OUT_OF_MEMORY if is_out_of_memory(error) else Cause.EXCEPTION
    return Failure(at=time(), cause=cause, message=sentence, traceback=text)


def is_out_of_memory(error: BaseException) -> bool:
    """True when the program asked for more memory than the machine or the device has."""
    if isinstance(error, MemoryError):
        return True
    said = str(error).lower()
    return type(error).__name__ in _MEMORY_ERRORS and any(words in said for words in _MEMORY_WORDS)


def is_peer_loss(error: BaseException) -> bool:
    """True for what is a consequence of another process ending, not a fault of this one."""
    return type(error).__name__ in _PEER_ERRORS or any(words in str(error) for words in _PEER_WORDS)


def is_of_tpu(error: BaseException) -> bool:
    """True where TensorFlow was looking for a TPU, or was about to initialise it."""
    return any(_TPU_FILES.search(frame.filename) for frame in traceback.extract_tb(error.__traceback__))


def tpu_refusal(error: BaseException, name: str) -> TrainingFailed:
    """Why the TPU of that name ("": the machine's own) cannot be used, and what to do."""
    if isinstance(error, ValueError | OSError) and not name:
        return TrainingFailed(
            "This node has no TPU: name one in the job, or choose a strategy for the devices that the node has."
        )
    reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    said = textwrap.shorten(reason.rstrip("."), 160, placeholder="…")
    return TrainingFailed(
        f"The TPU {name or 'of this machine'} cannot be used ({said}): check its name, and that "
        "this TensorFlow was built for TPUs."
    )


def tpu_silent(name: str, limit_s: float, reason: str = "") -> TrainingFailed:
    """That the TPU has not answered in time: it is no peer of a gang, and nothing is launched again for it."""
    why = f" ({reason})" if reason else ""
    return TrainingFailed(
        f"The TPU {name or 'of this machine'} did not answer within {limit_s:g} s{why}: check its name or address, "
        "that it is running, and that this node can reach it.",
        Cause.LAUNCH_REFUSED,
    )


def _sentence(error: BaseException, code: Path) -> str:
    """`ValueError: bad shape (in recipe.py, line 12, build_model)`: the deepest line that is the user's."""
    lines = [line.strip() for line in _ORNAMENT.sub("", str(error)).splitlines() if line.strip()]
    what = f"{type(error).__name__}: {_reason(lines)}" if lines else type(error).__name__
    frames = [(frame.filename, frame.lineno, frame.name) for frame in traceback.extract_tb(error.__traceback__)]
    if _AUTOGRAPH_WORDS in lines[:1] or _TRACEBACK_LINE in lines:
        # TensorFlow tells the user's frames, and the error that was raised there, in the text.
        what = next((line for line in reversed(lines) if _ERROR_LINE.match(line)), what)
        frames += [(found[1], int(found[2]), found[3]) for line in lines if (found := _FRAME_LINE.match(line))]
    if len(what) > SENTENCE_CHARS:
        what = what[:SENTENCE_CHARS] + "…"
    for filename, line, name in reversed(frames):
        path = Path(filename)
        if path.is_relative_to(code):
            within = "" if name == "None" else f", {name}"  # traced lambdas have no name
            return f"{what} (in {path.relative_to(code)}, line {line}{within})"
    return what


def _reason(lines: list[str]) -> str:
    """The line that says why, of an error's text; TensorFlow and Keras begin theirs with where."""
    silent = [f"{found[1]} {found[2]}" for line in lines if (found := _TASK.match(line))]
    if lines[0].endswith(_SILENT_WORDS) and silent:
        return f"{' and '.join(sorted(silent))} stopped sending heartbeats"
    if lines[0].startswith(_GRAPH_WORDS):
        return next((line for line in lines[1:] if not _GRAPH_PLACES.match(line)), lines[0])
    if lines[0].startswith(_KERAS_WORDS) and len(lines) > 1:
        inner = next((place for place, line in enumerate(lines) if line.endswith(_KERAS_INNER)), 0)
        return lines[min(inner + 1, len(lines) - 1)]
    return lines[0]
