"""Which checkpoints the control plane may name when it launches this job again: those it has heard of.

A node that is cut off trains on until its lease is over, and one whose control plane is away for as long as it likes.
What is launched then begins with the newest checkpoint that was heard of, so that one may not be dropped meanwhile,
however many were written since. Heard of for sure is what was acknowledged; what was told soon after it, perhaps.
"""

from collections.abc import Iterable
from typing import NamedTuple

# How long after the first word that was not acknowledged further ones may have arrived nevertheless.
UNSURE_S = 5.0


class Told(NamedTuple):
    """The names that were kept after a save, `at` which moment (monotonic seconds), and where the stream ended then."""

    kept: frozenset[str]
    position: int
    at: float


class Heard:
    """What was told, from the newest that was acknowledged on. `restored` is what the training begins with, if any."""

    def __init__(self, restored: str = "") -> None:
        self._told = [Told(frozenset({restored}), 0, 0.0)] if restored else []

    @property
    def position(self) -> int:
        """Where the stream ended after the last save; 0 before the first."""
        return self._told[-1].position if self._told else 0

    def tell(self, kept: Iterable[str], *, position: int, at: float) -> None:
        """A save was told of. Of those that can hardly be known only the latest counts."""
        if self._told and not self._is_perhaps_known(self._told[-1]):
            self._told.pop()
        self._told.append(Told(frozenset(kept), position, at))

    def names(self, *, acknowledged: int) -> set[str]:
        """What may be named, when the stream is stored up to `acknowledged`; what is kept now is among it."""
        while len(self._told) > 1 and self._told[1].position <= acknowledged:
            del self._told[0]
        known = [told for told in self._told if self._is_perhaps_known(told)]
        return {name for told in [*known, *self._told[-1:]] for name in told.kept}

    def _is_perhaps_known(self, told: Told) -> bool:
        return told is self._told[0] or told.at - self._told[1].at <= UNSURE_S
