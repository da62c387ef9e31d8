"""Storage of metric series: columnar blocks, merged as they gather, and thinned for charts.

Ingest appends (one small block per series and batch, insert only), queries read. The order of a series is the order of
its blocks' ids. Numbers are float64 as the trainer wrote them: NaN and infinities are points like any other.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
from django.db.models import QuerySet
from numpy.typing import NDArray

from orchestrator.domain.words import storable
from orchestrator.models import SeriesBlock

FULL_BLOCK_POINTS = 4096
MERGE_AFTER_APPENDS = 64
NAME_CHARS = 200
NAMES_PER_OWNER = 500
OWNERS_REMEMBERED = 4096

_STEP, _NUMBER = np.dtype("<i8"), np.dtype("<f8")


class Curve(NamedTuple):
    """Points in order: `steps`, `times` (unix s) and `values`, equally long."""

    steps: NDArray[np.int64]
    times: NDArray[np.float64]
    values: NDArray[np.float64]


class Owner(NamedTuple):
    """Whose series it is: a replica (training) or a node (load); the other is None."""

    replica_id: int | None = None
    node_id: str | None = None


class Addition(NamedTuple):
    """New points of one series."""

    owner: Owner
    name: str
    curve: Curve


class _Appends:
    """Per owner, the names it has and how many blocks each got since it was last merged.

    A hint kept in memory: it is read from the table when an owner is first met, and being wrong only merges a series
    earlier or later.
    """

    def __init__(self) -> None:
        self._owners: OrderedDict[Owner, dict[str, int]] = OrderedDict()

    def of(self, owners: set[Owner]) -> dict[Owner, dict[str, int]]:
        unmet = [owner for owner in owners if owner not in self._owners]
        if unmet:
            self._owners.update({owner: {} for owner in unmet})
            for blocks in _blocks_of(unmet):
                for replica_id, node_id, name in blocks.values_list("replica_id", "node_id", "name"):
                    counts = self._owners[Owner(replica_id, node_id)]
                    counts[name] = counts.get(name, 0) + 1
        for owner in owners:
            self._owners.move_to_end(owner)
        found = {owner: self._owners[owner] for owner in owners}
        while len(self._owners) > OWNERS_REMEMBERED:
            self._owners.popitem(last=False)
        return found

    def forget(self) -> None:
        self._owners.clear()


appends = _Appends()


def tidy_name(name: str) -> str:
    """A series' name as stored: whatever the user chose, as databases take it and of bounded length."""
    return storable(name)[:NAME_CHARS] or "unnamed"


def curve_of(steps: Sequence[int], times: Sequence[float], values: Sequence[float]) -> Curve:
    """Points as arrays; raises `ValueError` when the columns differ in length or a time is not finite."""
    curve = Curve(np.array(steps, _STEP), np.array(times, _NUMBER), np.array(values, _NUMBER))
    if not len(curve.steps) == len(curve.times) == len(curve.values):
        raise ValueError("steps, times and values differ in length")
    if not np.isfinite(curve.times).all():
        raise ValueError("a time is not a number")
    return curve


def append(additions: Iterable[Addition]) -> set[tuple[Owner, str]]:
    """Store new points behind what is there. To be called in the transaction that moves the cursor, by one process.

    Returns the series that were refused because their owner has `NAMES_PER_OWNER` others already.
    """
    joined: dict[tuple[Owner, str], list[Curve]] = defaultdict(list)
    for owner, name, curve in additions:
        if len(curve.steps):
            joined[owner, name].append(curve)
    known = appends.of({owner for owner, _ in joined})
    blocks: list[SeriesBlock] = []
    full: list[tuple[Owner, str]] = []
    refused: set[tuple[Owner, str]] = set()
    for (owner, name), curves in joined.items():
        counts = known[owner]
        if name not in counts and len(counts) >= NAMES_PER_OWNER:
            refused.add((owner, name))
            continue
        counts[name] = counts.get(name, 0) + 1
        blocks.append(_block(owner, name, join(curves)))
        if counts[name] >= MERGE_AFTER_APPENDS:
            full.append((owner, name))
    SeriesBlock.objects.bulk_create(blocks)
    for owner, name in full:
        _merge(owner, name)
        known[owner][name] = 0
    return refused


def read(
    owners: Sequence[Owner], *, names: Iterable[str] | None = None, since: float | None = None
) -> dict[tuple[Owner, str], Curve]:
    """Every series of these owners, whole, or the points from time `since` on; `names` None means all names."""
    wanted = None if names is None else set(names)
    parts: dict[tuple[Owner, str], list[Curve]] = defaultdict(list)
    for blocks in _blocks_of(owners):
        found = blocks if wanted is None else blocks.filter(name__in=wanted)
        if since is not None:
            found = found.filter(last_time__gte=since)
        rows = found.values_list("replica_id", "node_id", "name", "count", "payload")
        for replica_id, node_id, name, count, payload in rows.iterator(chunk_size=500):
            parts[Owner(replica_id, node_id), name].append(_unpack(count, payload))
    curves = {key: join(found) for key, found in parts.items()}
    if since is None:
        return curves
    recent = {key: _pick(curve, curve.times >= since) for key, curve in curves.items()}
    return {key: curve for key, curve in recent.items() if len(curve.steps)}


def thin(curve: Curve, points: int) -> Curve:
    """At most about `points` points that draw the same line: first, last, and of each stretch its lowest, its highest
    and, where it holds one, a NaN."""
    size = len(curve.steps)
    if size <= max(points, 4):
        return curve
    missing = np.isnan(curve.values)
    per_stretch = 3 if missing.any() else 2
    width = -(-size // max((points - 2) // per_stretch, 1))
    stretches = -(-size // width)
    padding = stretches * width - size
    grid = np.concatenate([curve.values, np.repeat(curve.values[-1:], padding)]).reshape(stretches, width)
    base = np.arange(stretches) * width
    picks = [np.array([0, size - 1])]
    if per_stretch == 3:
        holes = np.concatenate([missing, np.repeat(missing[-1:], padding)]).reshape(stretches, width)
        picks.append((base + holes.argmax(axis=1))[holes.any(axis=1)])
        picks.append(base + np.where(holes, np.inf, grid).argmin(axis=1))
        picks.append(base + np.where(holes, -np.inf, grid).argmax(axis=1))
    else:
        picks += [base + grid.argmin(axis=1), base + grid.argmax(axis=1)]
    chosen = np.unique(np.minimum(np.concatenate(picks), size - 1))
    return _pick(curve, chosen)


def join(curves: Sequence[Curve]) -> Curve:
    """Curves one behind the other."""
    if len(curves) == 1:
        return curves[0]
    return Curve(*(np.concatenate(columns) for columns in zip(*curves, strict=True)))


def drop_node_points(*, before: float) -> None:
    """Remove blocks of node load whose last point is older than `before`."""
    SeriesBlock.objects.filter(node__isnull=False, last_time__lt=before).delete()


def _merge(owner: Owner, name: str) -> None:
    """Make one block of each unbroken row of small ones: the first takes the points of all, so ids keep their order."""
    (blocks,) = (blocks.filter(name=name) for blocks in _blocks_of([owner]))
    sizes = list(blocks.values_list("id", "count"))
    for is_small, stretch in groupby(sizes, key=lambda row: row[1] < FULL_BLOCK_POINTS):
        ids = [block_id for block_id, _ in stretch]
        if not is_small or len(ids) < 2:
            continue
        rows = blocks.filter(id__gte=ids[0], id__lte=ids[-1]).values_list("count", "payload")
        merged = _block(owner, name, join([_unpack(count, payload) for count, payload in rows]))
        SeriesBlock.objects.filter(id=ids[0]).update(
            count=merged.count, last_time=merged.last_time, payload=merged.payload
        )
        blocks.filter(id__gt=ids[0], id__lte=ids[-1]).order_by().delete()


def _blocks_of(owners: Sequence[Owner]) -> list[QuerySet[SeriesBlock]]:
    """One query per kind of owner, in the order of its index, so that the payloads are never sorted."""
    queries = []
    for kind in Owner._fields:
        if ids := [getattr(owner, kind) for owner in owners if getattr(owner, kind) is not None]:
            queries.append(SeriesBlock.objects.filter(**{f"{kind}__in": ids}).order_by(kind, "name", "id"))
    return queries


def _pick(curve: Curve, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> Curve:
    return Curve(curve.steps[chosen], curve.times[chosen], curve.values[chosen])


def _block(owner: Owner, name: str, curve: Curve) -> SeriesBlock:
    return SeriesBlock(
        replica_id=owner.replica_id,
        node_id=owner.node_id,
        name=name,
        count=len(curve.steps),
        last_time=float(curve.times.max()),
        payload=curve.steps.tobytes() + curve.times.tobytes() + curve.values.tobytes(),
    )


def _unpack(count: int, payload: bytes | memoryview) -> Curve:
    return Curve(
        np.frombuffer(payload, _STEP, count),
        np.frombuffer(payload, _NUMBER, count, count * 8),
        np.frombuffer(payload, _NUMBER, count, count * 16),
    )
