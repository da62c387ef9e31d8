"""How much memory this process has needed."""

import resource
from collections.abc import Callable

GROWTH = 1.02


def peak_bytes() -> int:
    """The largest resident size so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts KiB


class Memory:
    """The peak as a fact, told again when it has grown by the factor `GROWTH`. `facts` takes it."""

    def __init__(self, facts: Callable[..., None]) -> None:
        self._facts = facts
        self._last_bytes = 0

    def tell(self) -> None:
        """Tell the peak, if it is news."""
        peak = peak_bytes()
        if peak > GROWTH * self._last_bytes:
            self._last_bytes = peak
            self._facts(memory_bytes=peak)
