"""A parameter server that holds far more than its share: each pull and push of it goes through one machine. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

# Times its share of the bytes; below, an uneven load is what whole variables make of it.
TIMES = 1.5
# Fewer bytes travel in no time, however they lie.
BYTES_MIN = 1_000_000


@dataclass(frozen=True)
class HotServer:
    """It holds `share` (0 to 1) of all `bytes`."""

    ps: int
    share: float
    bytes: float


def hot_server(held: Mapping[int, float]) -> HotServer | None:
    """The one of several servers, of those that hold so many bytes each, which holds much more than its share."""
    total = sum(held.values())
    if len(held) < 2 or total < BYTES_MIN:
        return None
    ps = max(held, key=held.__getitem__)
    share = held[ps] / total
    return HotServer(ps, share, held[ps]) if share * len(held) >= TIMES else None
