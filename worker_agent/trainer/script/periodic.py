"""Something that is done every so often beside a script, in a thread of its own."""

import threading
from collections.abc import Callable


class Periodic(threading.Thread):
    """`act` is called every `every_s` seconds from `start` on, and once more at `close`."""

    def __init__(self, name: str, every_s: float, act: Callable[[], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._every_s = every_s
        self._act = act
        self._closing = threading.Event()

    def close(self) -> None:
        """For the last time, in this thread."""
        self._closing.set()
        if self.is_alive():
            self.join()
        self._act()

    def run(self) -> None:
        """In the thread."""
        while not self._closing.wait(self._every_s):
            self._act()
