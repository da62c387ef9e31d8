"""Stand-ins of the way up: a Redis with the few commands ingest uses, and an agent that speaks for one replica."""

from collections.abc import Sequence
from typing import Any

from orchestrator.models import Node, Replica
from worker_agent.protocol.codec import encode
from worker_agent.protocol.envelope import seal
from worker_agent.protocol.records import Log, Points, Record
from worker_agent.protocol.reports import (
    REPORTS_KEY,
    Heartbeat,
    Records,
    Report,
    RunningReplica,
    Sample,
    ack_field,
    acks_key,
)

NOW_S = 1_800_000_000.0


class FakeRedis:
    """Streams and hashes in memory, answering as redis-py does without decoding."""

    def __init__(self) -> None:
        self.streams: dict[str, list[tuple[bytes, dict[bytes, bytes]]]] = {}
        self.hashes: dict[str, dict[bytes, bytes]] = {}
        self.expiries: dict[str, int] = {}
        self._number = 0

    def xadd(self, key: str, fields: dict[Any, Any], maxlen: int | None = None) -> bytes:
        self._number += 1
        entry_id = b"1800000000000-%d" % self._number
        entries = self.streams.setdefault(key, [])
        entries.append((entry_id, {_bytes(name): _bytes(value) for name, value in fields.items()}))
        if maxlen is not None:
            del entries[:-maxlen]
        return entry_id

    def xread(self, streams: dict[str, Any], count: int, block: int | None = None) -> list[Any]:
        ((key, last),) = streams.items()
        behind = [entry for entry in self.streams.get(key, []) if _place(entry[0]) > _place(_bytes(last))]
        return [[_bytes(key), behind[:count]]] if behind else []

    def xdel(self, key: str, *entry_ids: bytes) -> int:
        self.streams[key] = [entry for entry in self.streams.get(key, []) if entry[0] not in entry_ids]
        return len(entry_ids)

    def hset(self, key: str, mapping: dict[str, str]) -> int:
        self.hashes.setdefault(key, {}).update({_bytes(name): _bytes(value) for name, value in mapping.items()})
        return len(mapping)

    def hlen(self, key: str) -> int:
        return len(self.hashes.get(key, {}))

    def expire(self, key: str, seconds: int) -> bool:
        self.expiries[key] = seconds
        return True

    def delete(self, key: str) -> int:
        return 1 if self.hashes.pop(key, None) is not None else 0

    def pipeline(self, *, transaction: bool) -> "FakePipeline":
        return FakePipeline(self)


class FakePipeline:
    """Commands kept until `execute`."""

    def __init__(self, redis: FakeRedis) -> None:
        self._redis = redis
        self._kept: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __enter__(self) -> "FakePipeline":
        return self

    def __exit__(self, *exception: object) -> None:
        self._kept.clear()

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **named: self._kept.append((name, args, named))

    def execute(self) -> list[Any]:
        return [getattr(self._redis, name)(*args, **named) for name, args, named in self._kept]


class FakeAgent:
    """Speaks for one replica over a `FakeRedis`: keeps what it said as a spool would, and sends any part of it."""

    def __init__(self, redis: FakeRedis, replica: Replica, *, stream: str = "trainer") -> None:
        assert replica.node is not None
        self.redis, self.replica, self.node, self.stream = redis, replica, replica.node, stream
        self.payloads: list[bytes] = []
        self.ends: list[int] = []

    @property
    def size(self) -> int:
        return self.ends[-1] if self.ends else 0

    @property
    def acked(self) -> int:
        """The offset that ingest has acknowledged; 0 when it has said nothing."""
        mark = ack_field(self.replica.pk, self.replica.attempt, self.stream).encode()
        return int(self.redis.hashes.get(acks_key(self.node.pk), {}).get(mark, b"0"))

    def say(self, *records: Record | bytes) -> None:
        """Append records (or bytes that are none) to the spool."""
        for record in records:
            data = record if isinstance(record, bytes) else encode(record)
            self.payloads.append(data)
            self.ends.append(self.size + 8 + len(data))

    def slice(self, first: int = 0, last: int | None = None) -> Records:
        """Records `first` up to `last` as a slice."""
        return Records(
            node_id=self.node.pk,
            replica_id=self.replica.pk,
            attempt=self.replica.attempt,
            stream=self.stream,
            start=self.ends[first - 1] if first else 0,
            end=self.ends[first:last][-1],
            offsets=self.ends[first:last],
            records=self.payloads[first:last],
        )

    def send(self, first: int = 0, last: int | None = None) -> None:
        """Put that slice on the wire."""
        put(self.redis, self.node, self.slice(first, last))


def put(
    redis: FakeRedis, node: Node, report: Report, *, key: bytes | None = None, expires_at: float = NOW_S + 300
) -> None:
    """Sign a report with the node's key (or another) and put it on the wire."""
    signed = seal(encode(report), node_id=node.pk, key=key or bytes(node.key), expires_at=expires_at)
    redis.xadd(REPORTS_KEY, {"e": signed})


def points(values: Sequence[float], *, first: int = 0, name: str = "loss") -> Points:
    """A run of one scalar from step `first` on."""
    steps = list(range(first, first + len(values)))
    return Points(names=[name], steps=steps, times=[NOW_S + step for step in steps], values=[list(values)])


def log(text: str, *, at: float = NOW_S) -> Log:
    """Output said at `at`."""
    return Log(at=at, text=text)


def heartbeat(
    node: Node, *, at: float = NOW_S, cpu: float = 12.5, replicas: Sequence[RunningReplica] = ()
) -> Heartbeat:
    """A node's load now."""
    sample = Sample(
        at=at,
        cpu_percent=cpu,
        memory_used_bytes=1 << 30,
        memory_total_bytes=8 << 30,
        network_sent_bps=1000.0,
        network_received_bps=2000.0,
        gpus=[],
    )
    return Heartbeat(node_id=node.pk, sample=sample, replicas=list(replicas))


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _place(entry_id: bytes) -> tuple[int, ...]:
    return tuple(int(part) for part in entry_id.split(b"-"))
