"""The way up: signed reports from the Redis stream into the database, a batch at a time.

`manage.py ingest` calls `Ingest.step` in a loop, in one process. The stream holds what is not stored yet: a step reads
from its beginning, stores in one transaction, and only then removes the entries, acknowledges, and lets pages know. So
a step that is cut off anywhere is simply done again; what was stored already is cut by the cursors.
"""

import logging
import time
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec
from django.db import InterfaceError, OperationalError
from redis import Redis

from orchestrator import live, series
from orchestrator.models import ServiceBeat
from orchestrator.services.intake import reports
from orchestrator.services.intake.load import load
from orchestrator.services.intake.records import Acks
from orchestrator.services.intake.reports import Sender
from orchestrator.services.transitions import StaleTransition
from worker_agent.protocol.codec import decode_report, is_heartbeat
from worker_agent.protocol.envelope import BadEnvelope, Envelope, SeenNonces, read_envelope, verify
from worker_agent.protocol.reports import REPORTS_KEY, Records, Report, acks_key

logger = logging.getLogger(__name__)

QUARANTINE_KEY = "trainyard:reports:quarantine"
QUARANTINE_ENTRIES = 100
ENTRIES_PER_READ = 16
ENTRIES_PER_STEP = 1024
BYTES_PER_STEP = 4_000_000
ACKS_KEPT_S = 86_400
ACK_FIELDS_PER_NODE = 4096
NONCES_KEPT = 100_000
# Nodes' clocks may be wrong by hours; within that, a repeated envelope is known by its nonce.
CLOCK_SKEW_S = 3 * 3600
BEAT_EVERY = timedelta(seconds=1)
# Longer between two beats, this process was held up, and may have missed nodes. Stricter than the sweep, which only
# sees how old the last beat is (`reconcile.BEAT_BREAK`).
BREAK_AFTER = timedelta(seconds=3)
RETENTION_EVERY = timedelta(seconds=60)
NODE_LOAD_KEPT = timedelta(hours=24)
PATIENCE = 5
# Errors that pass by themselves: the database is away or busy, or somebody else moved a row at the same moment.
PASSING = (OperationalError, InterfaceError, StaleTransition)

Entry = tuple[bytes, dict[bytes, bytes]]
NOT_AN_ENVELOPE = Envelope(node_id="nobody", expires_at=0.0, nonce=b"", body=b"")


class Claimed(NamedTuple):
    """An entry of the stream, and what its envelope claims, which is not verified yet."""

    entry: Entry
    envelope: Envelope


class Received(NamedTuple):
    """A report whose signature is right, and the stream entry it came in."""

    sender: Sender
    report: Report
    nonce: bytes
    entry: Entry


class Ingest:
    """The state of one ingest process: nothing that has to outlive it.

    `counts` says how many entries were handled, `dropped` (not to be trusted), `repeated` (seen before) and
    `quarantined` (could not be stored).
    """

    def __init__(self, redis: Redis) -> None:
        self.counts: Counter[str] = Counter()
        self._redis = redis
        self._inbox = _Inbox(redis)
        self._nonces = SeenNonces(NONCES_KEPT)
        self._beat_at: datetime | None = None
        self._swept_at: datetime | None = None
        self._setbacks = 0

    def step(self, now: datetime, *, wait_ms: int = 0, gather_s: float = 0.0) -> int:
        """Handle what is in the stream, at most one batch; wait for the first entry up to `wait_ms`. Heartbeats may be
        left until the first of them has waited `gather_s`. How many entries there were, with those that were left.

        Raises the errors of Redis and of a database that is away; nothing is lost then.
        """
        try:
            self._inbox.read(wait_ms, gather_s)
            self._beat(now)
            found = len(self._inbox)
            if claimed := self._inbox.take(gather_s):
                with live.gathered():
                    acks = self._store(self._open(claimed, now), now)
                    self._settle([each.entry for each in claimed], acks)
        except Exception:
            self._inbox.clear()
            reports.forget()
            raise
        self.counts["handled"] += len(claimed)
        return found

    def _open(self, claimed: Sequence[Claimed], now: datetime) -> list[Received]:
        """The reports in entries that are genuine; the others are counted and logged."""
        senders = reports.senders(each.envelope.node_id for each in claimed)
        earliest = now.timestamp() - CLOCK_SKEW_S
        received: list[Received] = []
        for entry, envelope in claimed:
            try:
                received.append(_genuine(entry, envelope, senders.get(envelope.node_id), earliest))
            except (BadEnvelope, msgspec.DecodeError) as error:
                self._drop(entry, envelope.node_id, error)
        return received

    def _store(self, received: Sequence[Received], now: datetime) -> Acks:
        """All in one transaction; when that fails, one by one, so that only what is at fault stays out."""
        fresh = self._fresh(received)
        try:
            acks = reports.apply([(item.sender, item.report) for item in fresh], now=now)
        except PASSING:
            # Again in a moment. If that never helps though beats can be written, the batch is at fault.
            self._setbacks += 1
            if self._setbacks < PATIENCE:
                raise
            reports.forget()
            acks = self._store_singly(fresh, now)
        except Exception:
            logger.exception("a batch of %d reports failed and is stored one by one", len(fresh))
            reports.forget()
            acks = self._store_singly(fresh, now)
        self._setbacks = 0
        for item in fresh:
            if not isinstance(item.report, Records):
                self._nonces.claim(item.nonce)
        return acks

    def _fresh(self, received: Sequence[Received]) -> list[Received]:
        """Records are known by their offsets; anything else that was handled before is not news."""
        fresh: dict[bytes, Received] = {}
        for item in received:
            known = item.nonce in fresh or (item.nonce in self._nonces and not isinstance(item.report, Records))
            if known:
                self.counts["repeated"] += 1
            else:
                fresh[item.nonce] = item
        return list(fresh.values())

    def _store_singly(self, received: Sequence[Received], now: datetime) -> Acks:
        acks: Acks = {}
        for item in received:
            for part in _parts(item.report):
                for node_id, offsets in self._store_part(item, part, now).items():
                    acks.setdefault(node_id, {}).update(offsets)
        return acks

    def _store_part(self, item: Received, part: Report, now: datetime) -> Acks:
        try:
            return reports.apply([(item.sender, part)], now=now)
        except Exception as error:
            if isinstance(error, PASSING) and self._setbacks < PATIENCE:
                raise
            reports.forget()
            _write_beat({"beat_at": now})
            logger.exception("a report of node %s is put aside", item.sender.pk)
            self.counts["quarantined"] += 1
            why = f"{type(error).__name__}: {error}"
            kept: dict[Any, Any] = {"e": item.entry[1][b"e"], "why": why[:1000]}
            self._redis.xadd(QUARANTINE_KEY, kept, maxlen=QUARANTINE_ENTRIES)
            return reports.skip(item.sender, part, why=why, now=now) if isinstance(part, Records) else {}

    def _settle(self, entries: Sequence[Entry], acks: Acks) -> None:
        """Only after the commit: the entries leave the stream, and the nodes hear how far their streams are stored."""
        with self._redis.pipeline(transaction=False) as pipe:
            for node_id, offsets in acks.items():
                pipe.hset(acks_key(node_id), mapping={mark: str(offset) for mark, offset in offsets.items()})
                pipe.expire(acks_key(node_id), ACKS_KEPT_S)
            for node_id in acks:
                pipe.hlen(acks_key(node_id))
            pipe.xdel(REPORTS_KEY, *(entry_id for entry_id, _ in entries))
            answers = pipe.execute()
        for node_id, fields in zip(acks, answers[2 * len(acks) : -1], strict=True):
            if fields > ACK_FIELDS_PER_NODE:
                # Long ended replicas fill it. What is needed still is acknowledged again when the agent repeats itself.
                self._redis.delete(acks_key(node_id))

    def _drop(self, entry: Entry, node_id: str, error: Exception) -> None:
        self.counts["dropped"] += 1
        logger.warning("dropped report %s said to be of node %.40r: %s", entry[0].decode(), node_id, error)

    def end(self, now: datetime) -> None:
        """Write what is still kept in memory: the last seconds of the nodes' load."""
        load.write(now=now, everything=True)

    def _beat(self, now: datetime) -> None:
        """Say once a second that ingest hears; after a break, since when. Write nodes' load, and remove what is old."""
        since = now - self._beat_at if self._beat_at is not None else None
        if since is not None and timedelta(0) <= since < BEAT_EVERY:
            return
        # A clock that was set is a break as well, back or forth.
        broke = since is None or not timedelta(0) <= since <= BREAK_AFTER
        _write_beat({"beat_at": now} | ({"alive_since": now} if broke else {}))
        load.write(now=now)
        self._beat_at = now
        if self._swept_at is None or now - self._swept_at >= RETENTION_EVERY:
            series.drop_node_points(before=(now - NODE_LOAD_KEPT).timestamp())
            self._swept_at = now


def _write_beat(columns: dict[str, datetime]) -> None:
    created = {"alive_since": columns["beat_at"], **columns}
    ServiceBeat.objects.update_or_create(name=ServiceBeat.INGEST, defaults=columns, create_defaults=created)


class _Inbox:
    """What was read and is not handled yet. It is in the stream until then: a new process reads it again.

    Many heartbeats cost less together, and are not urgent. Anything else is handled at once, with all that its node
    said before: what a node says keeps its order.
    """

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self.clear()

    def __len__(self) -> int:
        return len(self._kept)

    def clear(self) -> None:
        """Begin again at the beginning of the stream."""
        self._kept: list[Claimed] = []
        self._urgent: set[str] = set()
        self._last: bytes | str = "0-0"
        self._since = 0.0
        self._size = 0

    def read(self, wait_ms: int, gather_s: float) -> None:
        """Add what came since, as far as a batch has room. It is waited for, but no longer than what is here may."""
        if self._kept:
            wait_ms = min(wait_ms, int((gather_s - self._age_s()) * 1000))
        while not self._is_full():
            block = wait_ms if wait_ms > 0 else None
            answer: Any = self._redis.xread({REPORTS_KEY: self._last}, count=ENTRIES_PER_READ, block=block)
            found: list[Entry] = answer[0][1] if answer else []
            for entry in found:
                self._add(entry)
            if len(found) < ENTRIES_PER_READ:
                return
            wait_ms = 0

    def take(self, gather_s: float) -> list[Claimed]:
        """What is to be handled now, in order; the rest is kept."""
        kept = self._kept
        if not kept or self._is_full() or self._age_s() >= gather_s or self._urgent.issuperset(_nodes_of(kept)):
            self.clear()
            return kept
        urgent, self._urgent = self._urgent, set()
        self._kept = [each for each in kept if each.envelope.node_id not in urgent]
        return [each for each in kept if each.envelope.node_id in urgent]

    def _add(self, entry: Entry) -> None:
        data = entry[1].get(b"e", b"")
        try:
            envelope = read_envelope(data)
        except BadEnvelope:
            envelope = NOT_AN_ENVELOPE
        if not is_heartbeat(envelope.body):
            self._urgent.add(envelope.node_id)
        if not self._kept:
            self._since = time.monotonic()
        self._kept.append(Claimed(entry, envelope))
        self._last = entry[0]
        self._size += len(data)

    def _is_full(self) -> bool:
        return len(self._kept) >= ENTRIES_PER_STEP or self._size >= BYTES_PER_STEP

    def _age_s(self) -> float:
        return time.monotonic() - self._since


def _nodes_of(claimed: Sequence[Claimed]) -> set[str]:
    return {each.envelope.node_id for each in claimed}


def _genuine(entry: Entry, envelope: Envelope, sender: Sender | None, earliest: float) -> Received:
    if sender is None:
        raise BadEnvelope("there is no such node")
    verify(envelope, key=sender.key, now=earliest)
    report = decode_report(envelope.body)
    if report.node_id != sender.pk:
        raise BadEnvelope("the report in it is of another node")
    return Received(sender, report, envelope.nonce, entry)


def _parts(report: Report) -> list[Report]:
    """A slice of records as slices of one record each; any other report as it is."""
    if not isinstance(report, Records) or len(report.offsets) != len(report.records) or len(report.records) < 2:
        return [report]
    starts = [report.start, *report.offsets[:-1]]
    return [
        msgspec.structs.replace(report, start=start, end=end, offsets=[end], records=[data])
        for start, end, data in zip(starts, report.offsets, report.records, strict=True)
    ]
