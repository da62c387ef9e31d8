"""For how long something has been as it is, by the sweep's own monotonic clock: neither a clock that is set nor a
machine that was suspended adds to it. `sweep/silence` and `hangs` keep some.
"""

from collections.abc import Mapping
from time import monotonic


class Watch:
    """For how long things have been as they are. Whoever asks is told 0 s about what was not there the last time."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[object, float]] = {}

    def observe(self, present: Mapping[str, object]) -> dict[str, float]:
        """Seconds, by key, for which each value has been the same at every call."""
        now, before = monotonic(), self._since
        self._since = {
            key: before[key] if key in before and before[key][0] == value else (value, now)
            for key, value in present.items()
        }
        return {key: now - since for key, (_, since) in self._since.items()}
