"""What every benchmark shares: quantiles, and one table line of ours against a floor (and peers) of the same run."""

from collections.abc import Sequence
from dataclasses import dataclass, field


def quantile(values: Sequence[float], share: float) -> float:
    """The `share` quantile (0..1) of `values`, linearly interpolated; NaN when there are none."""
    ordered = sorted(values)
    if not ordered:
        return float("nan")
    place = (len(ordered) - 1) * share
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


@dataclass(frozen=True)
class Line:
    """One measured quantity. `floor` is the cheapest thing that could do the job, `target` what is asked for.

    Where rounds were compared one by one, `ratio` is ours to the floor and `ratios` ours to each peer.
    """

    what: str
    unit: str
    ours: float
    floor: float
    target: str
    peers: dict[str, float] = field(default_factory=dict)
    ratio: float | None = None
    ratios: dict[str, float] = field(default_factory=dict)

    def text(self) -> str:
        """The line of the table; the ratio is ours to the floor of the same interleaved run."""
        peers = ", ".join(f"{name} {value:.3g}{self._to_peer(name)}" for name, value in self.peers.items()) or "-"
        ratio = self.ratio or (self.ours / self.floor if self.floor else float("nan"))
        return (
            f"{self.what:<46}{self.ours:>10.3g}{self.floor:>10.3g}{ratio:>8.2f}  {self.unit:<6}{self.target:<22}{peers}"
        )

    def _to_peer(self, name: str) -> str:
        return f" (ours {self.ratios[name]:.2f}x)" if name in self.ratios else ""


HEAD = f"{'what':<46}{'ours':>10}{'floor':>10}{'ratio':>8}  {'unit':<6}{'target':<22}peers"
