"""The load of nodes, one block per node and minute with all that a heartbeat tells. `reports` keeps samples here when
their transaction has committed; `ingest` has them written.

What is gathered is in memory for up to `WRITTEN_EVERY_S`, in which the node's row has the latest sample; an ingest that
is killed loses so much of these curves, and of nothing else.
"""

from array import array
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from django.db import transaction

from orchestrator import series
from orchestrator.many_rows import update_rows
from orchestrator.models import Node, SeriesBlock
from worker_agent.protocol.reports import Sample

WRITTEN_EVERY_S = 10.0
# Of what is due, a part is written at a time: so the blocks of many nodes spread over the seconds by themselves.
WRITTEN_AT_ONCE = 100
MINUTE_S = 60
LOAD = ("cpu_percent", "memory_used_bytes", "network_sent_bps", "network_received_bps")
GPU_LOAD = ("utilisation", "memory_bytes", "temperature", "power_w")


class Taken(NamedTuple):
    """What is kept of a sample, taken at `at` (unix s): `values` are `LOAD`, then `GPU_LOAD` of each of its `gpus`."""

    node_id: str
    at: float
    gpus: tuple[int, ...]
    values: list[float]


def taken(node_id: str, at: float, sample: Sample) -> Taken:
    """A sample of this node; it comes a thousand times a second, so its fields are spelled out."""
    values = [sample.cpu_percent, sample.memory_used_bytes, sample.network_sent_bps, sample.network_received_bps]
    for gpu in sample.gpus:
        values += (gpu.utilisation, gpu.memory_bytes, gpu.temperature, gpu.power_w)
    return Taken(node_id, at, tuple([gpu.index for gpu in sample.gpus]), values)


def _series_names(gpus: tuple[int, ...]) -> list[str]:
    return [*LOAD, *(f"gpu{index}_{name}" for index in gpus for name in GPU_LOAD)]


class Minute:
    """The samples of a node within a minute: one row of `values` for each of `times`."""

    def __init__(self, node_id: str, number: int, gpus: tuple[int, ...], due_s: float) -> None:
        self.node_id, self.number, self.gpus = node_id, number, gpus
        self.times, self.values = array("d"), array("d")
        self.pk: int | None = None
        self.due_s = due_s

    def block(self) -> series.Block | None:
        """All of it."""
        names = _series_names(self.gpus)
        columns = [self.values[place :: len(names)] for place in range(len(names))]
        said = series.Points(names, [0] * len(self.times), self.times, columns)
        return series.block_of(series.Owner(node_id=self.node_id), [said])


class Load:
    """What is not written yet, of every node; the state of the one ingest process."""

    def __init__(self) -> None:
        self._open: dict[str, Minute] = {}
        # In the order in which they are due; a minute that is over leaves with its last writing.
        self._unwritten: dict[Minute, None] = {}

    def keep(self, samples: Sequence[Taken], *, now: datetime) -> None:
        """These are to be written soon."""
        due_s = now.timestamp() + WRITTEN_EVERY_S
        for node_id, at, gpus, values in samples:
            minute, number = self._open.get(node_id), int(at // MINUTE_S)
            if minute is None or minute.number != number or minute.gpus != gpus:
                self._open[node_id] = minute = Minute(node_id, number, gpus, due_s)
            elif minute not in self._unwritten:
                minute.due_s = due_s
            minute.times.append(at)
            minute.values.extend(values)
            self._unwritten[minute] = None

    def write(self, *, now: datetime, everything: bool = False) -> None:
        """Write what is due, in a transaction of its own: a part of it, or `everything`."""
        share = max(WRITTEN_AT_ONCE, len(self._open) // int(WRITTEN_EVERY_S) + 1)
        found = list(self._unwritten) if everything else list(islice(self._due(now), share))
        if not found:
            return
        with transaction.atomic():
            known = set(Node.objects.filter(pk__in={minute.node_id for minute in found}).values_list("pk", flat=True))
            blocks = {minute: block for minute in found if minute.node_id in known and (block := minute.block())}
            grown: dict[int, Sequence[object]] = {
                minute.pk: (each.size, each.last_time, each.payload) for minute, each in blocks.items() if minute.pk
            }
            update_rows(SeriesBlock, grown, columns=["count", "last_time", "payload"])
            new = [minute for minute in blocks if minute.pk is None]
            rows = SeriesBlock.objects.bulk_create(
                SeriesBlock(**dict(zip(series.BLOCK_COLUMNS, blocks[minute], strict=True))) for minute in new
            )
        for minute, row in zip(new, rows, strict=True):
            minute.pk = row.pk
        for minute in found:
            del self._unwritten[minute]
            if minute not in blocks:
                self._open.pop(minute.node_id, None)

    def forget(self) -> None:
        """As in a new process."""
        self._open.clear()
        self._unwritten.clear()

    def _due(self, now: datetime) -> Iterator[Minute]:
        for minute in self._unwritten:
            if minute.due_s > now.timestamp() + WRITTEN_EVERY_S:
                minute.due_s = now.timestamp()  # the clock was set back
            if minute.due_s > now.timestamp():
                return
            yield minute


load = Load()
