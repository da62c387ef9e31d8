"""How the loops of the control plane learn by a signal that they are to end. Called by `management/commands`.

A handler runs in the main thread between any two of its instructions, also while that thread holds the lock of a
`threading.Event` on its way into `wait`: one that calls `set` then waits for itself for ever. And a signal that comes
just before a thread blocks does not wake it. So this handler takes no lock, and nothing here blocks for longer than
`LOOK_EVERY_S`.
"""

import signal
from time import monotonic, sleep

LOOK_EVERY_S = 0.1


class EndSignals:
    """Set for good by the first of the signals. Made, and waited for, in the main thread."""

    def __init__(self, *numbers: signal.Signals) -> None:
        self._received = False
        for number in numbers:
            signal.signal(number, self._receive)

    def is_set(self) -> bool:
        """Whether one has come."""
        return self._received

    def wait(self, timeout_s: float) -> bool:
        """Wait for one for at most so long; whether one has come."""
        until = monotonic() + timeout_s
        while not self._received and (left_s := until - monotonic()) > 0:
            sleep(min(left_s, LOOK_EVERY_S))
        return self._received

    def _receive(self, *_: object) -> None:
        self._received = True
