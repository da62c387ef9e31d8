"""The small curve of a job in lists: a few points of its loss, kept as it grows. Ingest adds to it, pages draw it."""

from collections.abc import Sequence
from math import isfinite

POINTS = 48
DRAWN = 32

Sketch = list[list[float]]


def extended(sketch: Sketch, steps: Sequence[int], values: Sequence[float]) -> Sketch:
    """The sketch ([step, value] pairs, at most `POINTS`) with later points; what they did again is replaced."""
    kept = list(sketch)
    while kept and len(steps) and kept[-1][0] >= steps[0]:
        kept.pop()
    for step, value in zip(steps, values, strict=True):
        apart = (kept[-1][0] - kept[0][0]) / POINTS if kept else 0
        if isfinite(value) and (not kept or step > kept[-1][0] + apart):
            kept.append([step, float(f"{value:.4g}")])
            if len(kept) > POINTS:
                kept = kept[::2]
    return kept


def drawn(sketch: Sequence[Sequence[float]]) -> list[float]:
    """Its values at even distances of steps."""
    if len(sketch) < 2:
        return []
    first, last = sketch[0][0], sketch[-1][0]
    values, place = [], 0
    for number in range(DRAWN):
        step = first + (last - first) * number / (DRAWN - 1)
        while place + 1 < len(sketch) and sketch[place + 1][0] <= step:
            place += 1
        values.append(sketch[place][1])
    return values
