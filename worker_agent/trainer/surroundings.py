"""Whether a program has looked at what is otherwise while it is only checked: the network, and the devices.

What it returned may then be otherwise in training, and so may what the trainer's rules say of it. Used by `check.py`,
in a process that does nothing else.
"""

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

# Python's own names (docs.python.org/3/library/audit_events.html). What a program starts may ask for the network, too.
_OUTSIDE = frozenset({"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "subprocess.Popen", "os.system"})
_DEVICES = "devices"

_seen: set[str] = set()
_code: list[Path] = []


def watch(code: Path) -> None:
    """Note from now on what is looked at by the program in the folder `code`. TensorFlow's devices are set up."""
    _code[:] = [code]
    _begin()
    _seen.clear()


def looked_outside() -> bool:
    """Whether it tried the network, or started another program."""
    return bool(_seen & _OUTSIDE)


def looked_at_devices() -> bool:
    """Whether a line of its own asked TensorFlow for the devices of this process."""
    return _DEVICES in _seen


@cache
def _begin() -> None:
    from tensorflow.python.eager import context  # private: every public way to the devices leads through it

    sys.addaudithook(lambda event, _: _seen.add(event) if event in _OUTSIDE else None)
    devices = context.context()
    for name in ("list_physical_devices", "list_logical_devices"):
        setattr(devices, name, _noted(getattr(devices, name)))


def _noted(ask: Callable[..., Any]) -> Callable[..., Any]:
    def asked(*args: Any, **named: Any) -> Any:
        asker = Path(_file_of(sys._getframe(1)))
        if any(asker.is_relative_to(code) for code in _code):
            _seen.add(_DEVICES)
        return ask(*args, **named)

    return asked


def _file_of(frame: FrameType) -> str:
    """That of the innermost line outside TensorFlow: Keras asks for devices whenever it compiles a model."""
    while frame.f_back is not None and "/tensorflow/" in frame.f_code.co_filename:
        frame = frame.f_back
    return frame.f_code.co_filename
