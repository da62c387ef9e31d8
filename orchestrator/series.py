"""Storage of metric series: columnar blocks, sorted in as points gather, and thinned for charts.

Ingest stores what an owner said in a batch as one row of all its series, insert only: an unsorted block. When enough of
them have gathered, their points go to the blocks of each series. Queries read both; the order of a series is the order
of its blocks' ids. Numbers are float64 as the trainer wrote them: NaN and infinities are points like any other.
"""

from array import array
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from django.db.models import Max, QuerySet
from numpy.typing import NDArray

from orchestrator.domain.words import storable
from orchestrator.many_rows import insert_rows, update_rows
from orchestrator.models import SeriesBlock

FULL_BLOCK_POINTS = 4096
# Unsorted blocks of an owner are sorted in when there are so many, or so many numbers are in them: so many owners at
# most a batch, unless they said much: nobody waits for a long transaction.
SORTED_AFTER_BLOCKS = 256
SORTED_AFTER_NUMBERS = 2048
SORTED_AT_ONCE = 16
UNSORTED = ""
NAME_CHARS = 200
NAMES_PER_OWNER = 500
OWNERS_REMEMBERED = 4096
PAGE_BLOCKS = 8

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


class Points(NamedTuple):
    """Points of several series that were said together: `steps` and `times` belong to each column of `values`."""

    names: Sequence[str]
    steps: Sequence[int]
    times: Sequence[float]
    values: Sequence[Sequence[float]]


class Block(NamedTuple):
    """A `SeriesBlock` as it is written, in the order of `BLOCK_COLUMNS`."""

    replica_id: int | None
    node_id: str | None
    name: str
    size: int
    last_time: float
    payload: bytes


BLOCK_COLUMNS = ("replica_id", "node_id", "name", "count", "last_time", "payload")


class _Packed(NamedTuple):
    """`Points` in an unsorted block: numbers as bytes, columns of values one behind the other."""

    names: list[str]
    steps: bytes
    times: bytes
    values: bytes


_packed = msgspec.msgpack.Decoder(list[_Packed])


class _Owned:
    """What an owner has: the names of its series, and how much of it is unsorted."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.blocks = 0
        self.numbers = 0


class _Appends:
    """A hint kept in memory: it is read from the table when an owner is first met, and being wrong only sorts its
    points in earlier or later."""

    def __init__(self) -> None:
        self._owners: OrderedDict[Owner, _Owned] = OrderedDict()

    def of(self, owners: Iterable[Owner]) -> dict[Owner, _Owned]:
        unmet = [owner for owner in owners if owner not in self._owners]
        if unmet:
            self._owners.update({owner: _Owned() for owner in unmet})
            self._read(unmet)
        for owner in owners:
            self._owners.move_to_end(owner)
        found = {owner: self._owners[owner] for owner in owners}
        while len(self._owners) > OWNERS_REMEMBERED:
            self._owners.popitem(last=False)
        return found

    def forget(self) -> None:
        self._owners.clear()

    def _read(self, unmet: list[Owner]) -> None:
        for blocks in _blocks_of(unmet):
            named = blocks.exclude(name=UNSORTED).order_by()
            for replica_id, node_id, name in named.values_list("replica_id", "node_id", "name").distinct():
                self._owners[Owner(replica_id, node_id)].names.add(name)
            late = blocks.filter(name=UNSORTED).values_list("replica_id", "node_id", "count", "payload")
            for replica_id, node_id, count, payload in late:
                owned = self._owners[Owner(replica_id, node_id)]
                owned.names.update(name for packed in _packed.decode(payload) for name in packed.names)
                owned.blocks += 1
                owned.numbers += count


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
    """`store` for points that are arrays already."""
    news: dict[Owner, list[Points]] = defaultdict(list)
    for owner, name, curve in additions:
        news[owner].append(Points([name], curve.steps.tolist(), curve.times.tolist(), [curve.values.tolist()]))
    return store(news)


def store(news: Mapping[Owner, Sequence[Points]]) -> set[tuple[Owner, str]]:
    """Store new points behind what is there. To be called in the transaction that moves the cursor, by one process.

    Returns the series that were refused because their owner has `NAMES_PER_OWNER` others already.
    """
    known = appends.of(news)
    refused: set[tuple[Owner, str]] = set()
    unsorted: dict[Owner, Block] = {}
    for owner, said in news.items():
        owned = known[owner]
        refused |= {(owner, name) for name in _refused(owned, said)}
        kept = [_without(points, refused, owner) for points in said] if refused else said
        if block := block_of(owner, kept):
            unsorted[owner] = block
            owned.blocks += 1
            owned.numbers += block.size
    large = [owner for owner in unsorted if known[owner].numbers >= SORTED_AFTER_NUMBERS]
    many = [owner for owner in unsorted if known[owner].blocks >= SORTED_AFTER_BLOCKS and owner not in large]
    many.sort(key=lambda owner: -known[owner].blocks)
    ripe = {*large, *many[:SORTED_AT_ONCE]}
    insert_rows(SeriesBlock, [block for owner, block in unsorted.items() if owner not in ripe], columns=BLOCK_COLUMNS)
    if ripe:
        _sort_in({owner: unsorted[owner].payload for owner in ripe})
    for owner in ripe:
        known[owner].blocks = known[owner].numbers = 0
    return refused


def block_of(owner: Owner, said: Sequence[Points]) -> Block | None:
    """What an owner said as one unsorted block; None when that is nothing."""
    packed = [
        _Packed(
            list(points.names),
            array("q", points.steps).tobytes(),
            array("d", points.times).tobytes(),
            b"".join([array("d", column).tobytes() for column in points.values]),
        )
        for points in said
        if points.steps and points.names
    ]
    if not packed:
        return None
    return Block(
        *owner,
        name=UNSORTED,
        size=sum(len(each.values) // 8 for each in packed),
        last_time=max(max(points.times) for points in said if points.steps),
        payload=msgspec.msgpack.encode(packed),
    )


def read(
    owners: Sequence[Owner], *, names: Iterable[str] | None = None, since: float | None = None
) -> dict[tuple[Owner, str], Curve]:
    """Every series of these owners, whole, or the points from time `since` on; `names` None means all names."""
    wanted = None if names is None else set(names)
    parts: dict[tuple[Owner, str], list[Curve]] = defaultdict(list)
    for blocks in _blocks_of(owners):
        found = blocks if wanted is None else blocks.filter(name__in=[*wanted, UNSORTED])
        if since is not None:
            found = found.filter(last_time__gte=since)
        rows = found.values_list("replica_id", "node_id", "name", "count", "payload")
        late: dict[Owner, list[bytes | memoryview]] = defaultdict(list)
        # One statement, so that nothing is sorted in between reading the one and the other.
        for replica_id, node_id, name, count, payload in rows.iterator(chunk_size=500):
            owner = Owner(replica_id, node_id)
            if name == UNSORTED:
                late[owner].append(payload)
            else:
                parts[owner, name].append(_unpack(count, payload))
        for owner, payloads in late.items():
            for name, curve in _curves_of(payloads).items():
                if wanted is None or name in wanted:
                    parts[owner, name].append(curve)
    curves = {key: join(found) for key, found in parts.items()}
    if since is None:
        return curves
    recent = {key: _pick(curve, curve.times >= since) for key, curve in curves.items()}
    return {key: curve for key, curve in recent.items() if len(curve.steps)}


def page(owner: Owner, name: str, *, first: int = 0) -> tuple[list[Curve], int | None]:
    """The next blocks of a series in order, from the one with id `first` on, and with which to go on; None at its end.

    To be called in one moment (`queries/telemetry.one_moment`), as points are sorted in meanwhile. The newest block may
    still grow, so the last one of a full page is read again with the next.
    """
    (blocks,) = _blocks_of([owner])
    rows = blocks.filter(name=name, id__gte=first).values_list("id", "count", "payload")[:PAGE_BLOCKS]
    ids, curves = [], []
    for block_id, count, payload in rows:
        ids.append(block_id)
        curves.append(_unpack(count, payload))
    if len(ids) == PAGE_BLOCKS:
        return curves[:-1], ids[-1]
    late = _curves_of(blocks.filter(name=UNSORTED).values_list("payload", flat=True))
    return [*curves, *([late[name]] if name in late else [])], None


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


def _refused(owned: _Owned, said: Sequence[Points]) -> list[str]:
    """The names that are too many; the others are its own from now on."""
    refused = []
    for name in (name for points in said for name in points.names if name not in owned.names):
        if len(owned.names) < NAMES_PER_OWNER:
            owned.names.add(name)
        elif name not in owned.names:
            refused.append(name)
    return refused


def _without(points: Points, refused: set[tuple[Owner, str]], owner: Owner) -> Points:
    places = [place for place, name in enumerate(points.names) if (owner, name) not in refused]
    names, values = [points.names[place] for place in places], [points.values[place] for place in places]
    return points._replace(names=names, values=values)


def _sort_in(last: Mapping[Owner, bytes]) -> None:
    """Bring the points of all unsorted blocks of these owners, and those of the `last` one of each, which is not
    stored, to the blocks of each series: the latest of these grows until it is full."""
    payloads: dict[Owner, list[bytes | memoryview]] = {owner: [] for owner in last}
    sorted_in: list[int] = []
    newest: dict[tuple[Owner, str], int] = {}
    for blocks in _blocks_of(list(last)):
        late = blocks.filter(name=UNSORTED).values_list("id", "replica_id", "node_id", "payload")
        for block_id, replica_id, node_id, payload in late:
            payloads[Owner(replica_id, node_id)].append(payload)
            sorted_in.append(block_id)
        named = blocks.exclude(name=UNSORTED).order_by().values_list("replica_id", "node_id", "name")
        for replica_id, node_id, name, block_id in named.annotate(newest=Max("id")):
            newest[Owner(replica_id, node_id), name] = block_id
    curves = {
        (owner, name): curve
        for owner, before in payloads.items()
        for name, curve in _curves_of([*before, last[owner]]).items()
    }
    rows = SeriesBlock.objects.filter(id__in=[newest[key] for key in curves if key in newest])
    found = rows.filter(count__lt=FULL_BLOCK_POINTS).values_list("id", "count", "payload")
    growing = {block_id: _unpack(count, payload) for block_id, count, payload in found}
    grown: dict[int, Sequence[object]] = {}
    fresh: list[Block] = []
    for key, curve in curves.items():
        if (block_id := newest.get(key, 0)) in growing:
            grown[block_id] = _block(*key, join([growing[block_id], curve]))[-3:]
        else:
            fresh.append(_block(*key, curve))
    update_rows(SeriesBlock, grown, columns=BLOCK_COLUMNS[-3:])
    insert_rows(SeriesBlock, fresh, columns=BLOCK_COLUMNS)
    SeriesBlock.objects.filter(id__in=sorted_in).delete()


def _curves_of(payloads: Iterable[bytes | memoryview]) -> dict[str, Curve]:
    """The series in unsorted blocks, in the order in which they were said."""
    parts: dict[str, tuple[list[bytes], list[bytes], list[bytes]]] = defaultdict(lambda: ([], [], []))
    for payload in payloads:
        for names, steps, times, values in _packed.decode(payload):
            for place, name in enumerate(names):
                columns = parts[name]
                columns[0].append(steps)
                columns[1].append(times)
                columns[2].append(values[place * len(steps) : (place + 1) * len(steps)])
    return {
        name: Curve(
            np.frombuffer(b"".join(steps), _STEP),
            np.frombuffer(b"".join(times), _NUMBER),
            np.frombuffer(b"".join(values), _NUMBER),
        )
        for name, (steps, times, values) in parts.items()
    }


def _blocks_of(owners: Sequence[Owner]) -> list[QuerySet[SeriesBlock]]:
    """One query per kind of owner, in the order of its index, so that the payloads are never sorted."""
    queries = []
    for kind in Owner._fields:
        if ids := [getattr(owner, kind) for owner in owners if getattr(owner, kind) is not None]:
            queries.append(SeriesBlock.objects.filter(**{f"{kind}__in": ids}).order_by(kind, "name", "id"))
    return queries


def _pick(curve: Curve, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> Curve:
    return Curve(curve.steps[chosen], curve.times[chosen], curve.values[chosen])


def _block(owner: Owner, name: str, curve: Curve) -> Block:
    return Block(
        *owner,
        name=name,
        size=len(curve.steps),
        last_time=float(curve.times.max()),
        payload=curve.steps.tobytes() + curve.times.tobytes() + curve.values.tobytes(),
    )


def _unpack(count: int, payload: bytes | memoryview) -> Curve:
    return Curve(
        np.frombuffer(payload, _STEP, count),
        np.frombuffer(payload, _NUMBER, count, count * 8),
        np.frombuffer(payload, _NUMBER, count, count * 16),
    )
