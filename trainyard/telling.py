"""How a program tells its numbers: to the job it runs in, or to the terminal where it runs by itself.

In the training process of a job the launcher hands in the way to speak (`connect`). A process that such a program
starts appends lines to the file that `TRAINYARD_SERIES` names, which the launcher reads. Anywhere else it is printed.
Standard library only: this package is on the import path of every job, whatever else is installed there.
"""

import json
import os
import sys
from typing import Any, Protocol, SupportsFloat, SupportsInt

SERIES_FILE = "TRAINYARD_SERIES"


class Listener(Protocol):
    """What the launcher hands in."""

    def scalars(self, step: int, scalars: dict[str, float]) -> None:
        """One point of each scalar at `step`."""

    def progress(self, step: int, total_steps: int, epoch: int, epochs: int) -> None:
        """How far the training is; 0 for what is not known."""


_listener: Listener | None = None


def log(step: SupportsInt, /, **scalars: SupportsFloat) -> None:
    """One point of each scalar at `step`: `log(100, loss=0.31, accuracy=0.9)`.

    Anything that counts as a number will do, as NumPy's and eager tensors do; what does not raises here.
    """
    number, values = int(step), _numbers(scalars)
    if _listener is not None:
        _listener.scalars(number, values)
    elif not _append({"step": number, "scalars": values}):
        _say(f"step {number}  " + "  ".join(f"{name} {value:.4g}" for name, value in values.items()))


def progress(step: SupportsInt, *, of: int = 0, epoch: int = 0, epochs: int = 0) -> None:
    """How far the training is: `progress(100, of=5000, epoch=1, epochs=10)`; leave out what is not known."""
    number = int(step)
    if _listener is not None:
        _listener.progress(number, of, epoch, epochs)
    elif not _append({"step": number, "of": of, "epoch": epoch, "epochs": epochs}):
        _say(f"step {number}" + (f"/{of}" if of else "") + (f"  epoch {epoch}/{epochs}" if epochs else ""))


def connect(listener: Listener | None) -> None:
    """For the launcher: from now on `listener` is told. A forked child lacks the threads behind it, and appends."""
    global _listener
    _listener = listener


def _numbers(scalars: dict[str, Any]) -> dict[str, float]:
    """As plain numbers; most programs give such already, and then there is nothing to make."""
    for value in scalars.values():
        if type(value) is not float:
            return {name: float(value) for name, value in scalars.items()}
    return scalars


def _append(line: dict[str, object]) -> bool:
    """Append one line to the job's file, in one write, so that processes do not mix theirs. False outside a job."""
    path = os.environ.get(SERIES_FILE)
    if not path:
        return False
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, json.dumps(line).encode() + b"\n")
    finally:
        os.close(file)
    return True


def _say(text: str) -> None:
    sys.stdout.write(text.rstrip() + "\n")
    sys.stdout.flush()


os.register_at_fork(after_in_child=lambda: connect(None))
