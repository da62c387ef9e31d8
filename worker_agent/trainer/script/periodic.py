"""Something that is done every so often beside a script, in a thread of its own."""

import threading
from collections.abc import Callable


class Periodic:
    """`act` is called every `every_s` seconds from `start` on, and once more at `close`."""

    def __init__(self, name: str, every_s: float, act: Callable[[], None]) -> None:
        self._every_s = every_s
        self._act = act
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """For the last time, in this thread."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()
        self._act()

    def _repeat(self) -> None:
        while not self._closing.wait(self._every_s):
            self._act()
