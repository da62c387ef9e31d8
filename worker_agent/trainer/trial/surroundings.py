"""What a program has looked at that is otherwise while it is only checked: the network, the devices, its place in the
gang.

What it returned may then be otherwise in training, and so may what the trainer's rules say of it. Used by `check.py`.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

# Python's own names (docs.python.org/3/library/audit_events.html). What a program starts may ask for the network, too.
_OUTSIDE = frozenset({"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "subprocess.Popen", "os.system"})
_KERAS = ("/keras/src/", "/tf_keras/src/")
_ASKS_FOR_OTHERS = "distribution_lib.py"


class Surroundings:
    """Notes what the program in the folder `code` asks for, from `watch` on; `gpus` says that the node has GPUs, which
    are hidden from it.

    `looked_outside`: it tried the network, or started another program. `looked_at_place`: it asked for the devices of
    this process, or read from its environment who it is in the gang.
    """

    def __init__(self, code: Path, *, gpus: bool) -> None:
        self.looked_outside = False
        self.looked_at_place = False
        self._code = code
        self._gpus = gpus

    def watch(self) -> None:
        """Begin, for as long as this process lives. TensorFlow's devices are set up."""
        from tensorflow.python.client import device_lib
        from tensorflow.python.eager import context  # private: the public ways to the devices lead through these two

        sys.addaudithook(self._heard)
        devices = context.context()
        for name in ("list_physical_devices", "list_logical_devices", "get_visible_devices"):
            setattr(devices, name, self._noted(getattr(devices, name), self._is_device_hidden))
        device_lib.list_local_devices = self._noted(device_lib.list_local_devices, lambda *_: True)
        environ = type(os.environ)
        setattr(environ, "__getitem__", self._noted(environ.__getitem__, self._is_name_of_place))  # noqa: B010

    def _heard(self, event: str, _: object) -> None:
        self.looked_outside |= event in _OUTSIDE

    def _noted(self, ask: Callable[..., Any], differs: Callable[..., bool]) -> Callable[..., Any]:
        """`ask`, noted where the program asks, and the answer `differs` in training."""

        def asked(*args: Any, **named: Any) -> Any:
            if differs(*args, **named) and self._is_asked_by_program(sys._getframe(1)):
                self.looked_at_place = True
            return ask(*args, **named)

        return asked

    def _is_device_hidden(self, device_type: str | None = None) -> bool:
        """A node without GPUs has none in training, either."""
        return self._gpus or device_type != "GPU"

    def _is_name_of_place(self, _: object, name: str | bytes) -> bool:
        text = os.fsdecode(name)
        return text == "TF_CONFIG" or text.startswith("TRAINYARD_") or (self._gpus and text == "CUDA_VISIBLE_DEVICES")

    def _is_asked_by_program(self, asker: FrameType | None) -> bool:
        """Whether one of its lines asks, itself or through a library: but Keras asks for devices by itself whenever a
        model is built or compiled, and for others only in `keras.distribution`."""
        while asker is not None:
            file = Path(asker.f_code.co_filename)
            if file.is_relative_to(self._code):
                return True
            if file.name != _ASKS_FOR_OTHERS and any(part in str(file) for part in _KERAS):
                return False
            asker = asker.f_back
        return False
