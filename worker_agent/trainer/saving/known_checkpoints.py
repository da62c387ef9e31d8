"""Which checkpoints the control plane may name when it launches this job again: those it knows of.

A node that is cut off trains on until its lease is over, and one whose control plane is away for as long as it likes.
What is launched then begins with the newest checkpoint that is known there, so that one may not be dropped meanwhile,
however many were written since. Known for sure is what was acknowledged; what was announced soon after it, perhaps.
"""

from collections.abc import Iterable
from typing import NamedTuple

# How long after the first announcement that was not acknowledged further ones may have arrived nevertheless.
UNSURE_S = 5.0


class Announcement(NamedTuple):
    """The names that were kept after a save, `at` which moment (monotonic seconds), and where the stream ended then."""

    kept: frozenset[str]
    position: int
    at: float


class KnownCheckpoints:
    """What was announced, from the newest that was acknowledged on. `restored` is what the training begins with."""

    def __init__(self, restored: str = "") -> None:
        self._announced = [Announcement(frozenset({restored}), 0, 0.0)] if restored else []

    @property
    def position(self) -> int:
        """Where the stream ended after the last save; 0 before the first."""
        return self._announced[-1].position if self._announced else 0

    def announce(self, kept: Iterable[str], *, position: int, at: float) -> None:
        """A save was announced. Of those that can hardly be known only the latest counts."""
        if self._announced and not self._is_perhaps_known(self._announced[-1]):
            self._announced.pop()
        self._announced.append(Announcement(frozenset(kept), position, at))

    def names(self, *, acknowledged: int) -> set[str]:
        """What may be named, when the stream is stored up to `acknowledged`; what is kept now is among it."""
        while len(self._announced) > 1 and self._announced[1].position <= acknowledged:
            del self._announced[0]
        known = [each for each in self._announced if self._is_perhaps_known(each)]
        return {name for each in [*known, *self._announced[-1:]] for name in each.kept}

    def _is_perhaps_known(self, announcement: Announcement) -> bool:
        return announcement is self._announced[0] or announcement.at - self._announced[1].at <= UNSURE_S
