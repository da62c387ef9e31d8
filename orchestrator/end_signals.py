"""How the loops of the control plane learn by a signal that they are to end. Called by `management/commands`.

A handler runs in the main thread between any two of its instructions, also while that thread holds the lock of a
`threading.Event` on its way into `wait`. A handler that calls `set` then waits for itself for ever. This one calls
`SimpleQueue.put`, which is reentrant (Python's documentation of `queue.SimpleQueue`).
"""

import signal
from contextlib import suppress
from queue import Empty, SimpleQueue


class EndSignals:
    """Set for good by the first of the signals. Made, and waited for, in the main thread."""

    def __init__(self, *numbers: signal.Signals) -> None:
        self._received = False
        self._wake: SimpleQueue[None] = SimpleQueue()
        for number in numbers:
            signal.signal(number, self._receive)

    def is_set(self) -> bool:
        """Whether one has come."""
        return self._received

    def wait(self, timeout_s: float) -> bool:
        """Wait for one for at most so long; whether one has come."""
        if not self._received:
            with suppress(Empty):
                self._wake.get(timeout=timeout_s)
        return self._received

    def _receive(self, *_: object) -> None:
        self._received = True
        self._wake.put(None)
