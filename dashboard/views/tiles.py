"""One figure of a strip of them, as `parts/_tile.html` prints it: on the overview, the job page and the node page."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Tile:
    """`key` names the number that lives on; `values` are its recent curve, from 0 to `top` if given."""

    label: str
    figure: str
    unit: str = ""
    note: str = ""
    key: str = ""
    values: Sequence[float] = ()
    top: float | None = None
