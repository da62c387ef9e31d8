"""What to ship, what was acknowledged, what to repeat: the logic of the shipper, with clock and channel given.

What was shipped stays in the spool. What is neither acknowledged nor waiting in the Redis stream any more is shipped
again from the acknowledged offset; the control plane cuts what it has already.
"""

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from worker_agent.daemon.core import ReplicaKey
from worker_agent.protocol.codec import encode
from worker_agent.protocol.envelope import seal
from worker_agent.protocol.records import Stream
from worker_agent.protocol.reports import Records, Report, ack_field
from worker_agent.replica.spool import Reader

ACKS_EVERY_S = 0.5
RESEND_S = 5.0
WINDOW_BYTES = 4 * 1024 * 1024
BATCH_RECORDS = 1000
BATCH_BYTES = 1_000_000
REPORT_LIFE_S = 7 * 86_400.0


class Channel(Protocol):
    """The way to the control plane; `shipper.py` has the one over Redis, the tests one in memory."""

    def append(self, envelope: bytes) -> bytes:
        """Hand over one report; the id under which it waits."""

    def is_waiting(self, entry: bytes) -> bool:
        """Whether this report has not been handled yet."""

    def acks(self) -> dict[str, int]:
        """By `ack_field`, up to where each stream is stored."""


@dataclass(slots=True)
class ShippedStream:
    """One stream of one replica on its way: `acked` ≤ reader.offset; `last_entry` is what was shipped last.

    Of a replica that `has_ended`, `end` is where its stream was found to end.
    """

    key: ReplicaKey
    stream: Stream
    reader: Reader
    acked: int = 0
    progress_at: float = 0.0
    last_entry: bytes = b""
    has_ended: bool = False
    end: int | None = None


class ShippingPlan:
    """What to ship, acknowledge and repeat: the logic, with clock and channel given. Not for several threads."""

    def __init__(self, *, node_id: str, key: bytes) -> None:
        self._node_id = node_id
        self._key = key
        self._feeds: dict[str, ShippedStream] = {}
        self._acks_read_at = float("-inf")
        self._known: frozenset[ReplicaKey] = frozenset()

    def position_is_known(self, key: ReplicaKey) -> bool:
        """Whether the control plane has been asked how far this replica's streams are stored. For any thread."""
        return key in self._known

    def add(self, key: ReplicaKey, spool: Path) -> None:
        """Begin with a replica's streams, at their beginning until an acknowledgement says otherwise."""
        for stream in Stream:
            field = ack_field(key.replica_id, key.attempt, stream)
            self._feeds.setdefault(field, ShippedStream(key, stream, Reader(spool / stream)))
        self._acks_read_at = float("-inf")

    def finish(self, key: ReplicaKey) -> None:
        """The replica has ended, and its last words are in its streams: they are not looked at again once read."""
        for feed in self._feeds.values():
            feed.has_ended |= feed.key == key

    def drop(self, key: ReplicaKey) -> None:
        """The replica is forgotten."""
        self._feeds = {field: feed for field, feed in self._feeds.items() if feed.key != key}

    def send(self, channel: Channel, report: Report, *, now: float) -> bytes:
        """One report as one signed entry."""
        envelope = seal(encode(report), node_id=self._node_id, key=self._key, expires_at=now + REPORT_LIFE_S)
        return channel.append(envelope)

    def step(self, channel: Channel, *, now: float, clock: float) -> bool:
        """Ship what is new, as far as the windows allow; whether everything that there is has been shipped.

        `now` is the wall clock for the envelopes, `clock` the monotonic one.
        """
        if clock - self._acks_read_at >= ACKS_EVERY_S:
            self._read_acks(channel, clock=clock)
            self._acks_read_at = clock
            for feed in self._feeds.values():
                self._rewind_if_lost(channel, feed, clock=clock)
        # A list: every feed gets its turn, also when an earlier one has more to ship.
        return all([self._ship(channel, feed, now=now, clock=clock) for feed in self._feeds.values()])

    def _read_acks(self, channel: Channel, *, clock: float) -> None:
        if not self._feeds:
            return
        for field, offset in channel.acks().items():
            feed = self._feeds.get(field)
            if feed is None or offset == feed.acked:
                continue
            if offset > feed.acked:
                feed.progress_at = clock
                feed.reader.offset = max(feed.reader.offset, offset)
            else:  # the control plane went back in time: a restored database
                feed.reader.offset = offset
            feed.acked = offset
            with contextlib.suppress(OSError):  # a full disk: the training keeps some checkpoints for longer
                feed.reader.acknowledge(offset)
        self._known = frozenset(feed.key for feed in self._feeds.values())

    def _rewind_if_lost(self, channel: Channel, feed: ShippedStream, *, clock: float) -> None:
        """Begin again at the acknowledged offset when what was shipped is neither stored nor waiting."""
        if feed.reader.offset <= feed.acked or clock - feed.progress_at < RESEND_S:
            return
        feed.progress_at = clock
        if not channel.is_waiting(feed.last_entry):
            feed.reader.offset = feed.acked

    def _ship(self, channel: Channel, feed: ShippedStream, *, now: float, clock: float) -> bool:
        if feed.reader.offset == feed.end:
            return True
        while feed.reader.offset - feed.acked < WINDOW_BYTES:
            if feed.reader.offset == feed.acked:
                feed.progress_at = clock
            start = feed.reader.offset
            batch = feed.reader.read(max_records=BATCH_RECORDS, max_bytes=BATCH_BYTES)
            if not batch.records:
                feed.end = start if feed.has_ended else None
                return True
            report = Records(
                node_id=self._node_id,
                replica_id=feed.key.replica_id,
                attempt=feed.key.attempt,
                stream=feed.stream,
                **batch._asdict(),
            )
            try:
                feed.last_entry = self.send(channel, report, now=now)
            except Exception:
                feed.reader.offset = start
                raise
        return False
