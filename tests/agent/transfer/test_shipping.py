"""Spool to stream: in order, bounded, repeated when lost, never twice in the control plane's books."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker_agent.daemon.core import ReplicaKey
from worker_agent.daemon.transfer.shipping_plan import ACKS_EVERY_S, RESEND_S, WINDOW_BYTES, ShippingPlan
from worker_agent.protocol.codec import decode_report
from worker_agent.protocol.envelope import open_envelope
from worker_agent.protocol.reports import Records, ack_field
from worker_agent.replica.spool import Reader, Writer

NODE = "0123456789ab"
SECRET = b"s" * 32
KEY = ReplicaKey(7, 1)
FIELD = ack_field(7, 1, "trainer")


class FakeChannel:
    """A stream and an ingest in memory, which can lose, hold back and fail."""

    def __init__(self) -> None:
        self.waiting: dict[bytes, bytes] = {}
        self.stored: dict[str, list[bytes]] = {}
        self.cursors: dict[str, int] = {}
        self.is_down = False
        self._numbers = itertools.count()

    def append(self, envelope: bytes) -> bytes:
        if self.is_down:
            raise ConnectionError("Redis is away")
        entry = b"%d-0" % next(self._numbers)
        self.waiting[entry] = envelope
        return entry

    def is_waiting(self, entry: bytes) -> bool:
        return entry in self.waiting

    def acks(self) -> dict[str, int]:
        if self.is_down:
            raise ConnectionError("Redis is away")
        return dict(self.cursors)

    def reports(self) -> list[Records]:
        opened = (open_envelope(data, node_id=NODE, key=SECRET, now=1.0)[0] for data in self.waiting.values())
        return [report for report in map(decode_report, opened) if isinstance(report, Records)]

    def ingest(self) -> None:
        for report in self.reports():
            field = ack_field(report.replica_id, report.attempt, report.stream)
            cursor = self.cursors.get(field, 0)
            if report.start <= cursor:
                new = [data for end, data in zip(report.offsets, report.records, strict=True) if end > cursor]
                self.stored.setdefault(field, []).extend(new)
                cursor = max(cursor, report.end)
            self.cursors[field] = cursor
        self.waiting.clear()


@pytest.fixture
def channel() -> FakeChannel:
    return FakeChannel()


@pytest.fixture
def shipping(tmp_path: Path) -> ShippingPlan:
    shipping = ShippingPlan(node_id=NODE, key=SECRET)
    shipping.add(KEY, tmp_path)
    return shipping


def write(folder: Path, *records: bytes) -> None:
    writer = Writer(folder / "trainer")
    for record in records:
        writer.append(record)
    writer.close()


def test_what_is_new_goes_out_once(tmp_path: Path, channel: FakeChannel, shipping: ShippingPlan) -> None:
    write(tmp_path, b"one", b"two")
    assert shipping.step(channel, now=0, clock=0)
    assert shipping.step(channel, now=0, clock=0.1)
    (report,) = channel.reports()
    assert (report.replica_id, report.attempt, report.stream) == (7, 1, "trainer")
    assert (report.start, report.end, report.offsets, report.records) == (0, 22, [11, 22], [b"one", b"two"])
    write(tmp_path, b"three")
    shipping.step(channel, now=0, clock=0.2)
    assert [report.start for report in channel.reports()] == [0, 22]


def test_the_writer_learns_what_is_stored(tmp_path: Path, channel: FakeChannel, shipping: ShippingPlan) -> None:
    write(tmp_path, b"one", b"two")
    writer = Writer(tmp_path / "trainer")
    shipping.step(channel, now=0, clock=0)
    assert writer.acknowledged == 0
    channel.ingest()
    shipping.step(channel, now=0, clock=ACKS_EVERY_S)
    assert writer.acknowledged == writer.end == 22
    writer.close()
    assert Writer(tmp_path / "trainer").end == 22


def test_both_streams_of_every_replica_go_out_until_it_is_dropped(tmp_path: Path, channel: FakeChannel) -> None:
    shipping = ShippingPlan(node_id=NODE, key=SECRET)
    for number in (1, 2):
        shipping.add(ReplicaKey(number, 1), tmp_path / str(number))
        for stream in ("trainer", "shim"):
            writer = Writer(tmp_path / str(number) / stream)
            writer.append(b"r")
            writer.close()
    shipping.drop(ReplicaKey(2, 1))
    shipping.step(channel, now=0, clock=0)
    assert [(report.replica_id, report.stream) for report in channel.reports()] == [(1, "trainer"), (1, "shim")]


def test_an_agent_that_starts_again_goes_on_where_it_was_acknowledged(
    tmp_path: Path, channel: FakeChannel, shipping: ShippingPlan
) -> None:
    write(tmp_path, b"one", b"two")
    channel.cursors[FIELD] = 11
    shipping.step(channel, now=0, clock=0)
    assert [report.records for report in channel.reports()] == [[b"two"]]


def test_the_window_holds_back_what_is_not_acknowledged(
    tmp_path: Path, channel: FakeChannel, shipping: ShippingPlan
) -> None:
    write(tmp_path, *[bytes([n]) * 500_000 for n in range(20)])
    assert not shipping.step(channel, now=0, clock=0)
    sent_bytes = sum(report.end - report.start for report in channel.reports())
    assert WINDOW_BYTES <= sent_bytes <= WINDOW_BYTES + 1_000_000
    clock = 0.0
    while len(channel.stored.get(FIELD, [])) < 20:
        channel.ingest()
        clock += ACKS_EVERY_S
        shipping.step(channel, now=0, clock=clock)
    assert channel.stored[FIELD] == [bytes([n]) * 500_000 for n in range(20)]


def test_what_was_lost_is_sent_again_and_what_only_waits_is_not(
    tmp_path: Path, channel: FakeChannel, shipping: ShippingPlan
) -> None:
    write(tmp_path, b"one")
    shipping.step(channel, now=0, clock=0)
    shipping.step(channel, now=0, clock=RESEND_S + 1)
    shipping.step(channel, now=0, clock=RESEND_S + 2)
    assert len(channel.waiting) == 1
    channel.waiting.clear()
    shipping.step(channel, now=0, clock=RESEND_S * 2)
    assert channel.reports() == []
    shipping.step(channel, now=0, clock=RESEND_S * 2 + 2)
    assert [report.records for report in channel.reports()] == [[b"one"]]


def test_a_control_plane_restored_from_a_backup_gets_it_again(
    tmp_path: Path, channel: FakeChannel, shipping: ShippingPlan
) -> None:
    write(tmp_path, b"one", b"two")
    shipping.step(channel, now=0, clock=0)
    channel.ingest()
    shipping.step(channel, now=0, clock=1)
    channel.cursors[FIELD] = 11
    channel.stored[FIELD] = [b"one"]
    shipping.step(channel, now=0, clock=2)
    channel.ingest()
    assert channel.stored[FIELD] == [b"one", b"two"]


def test_how_far_a_stream_is_stored_is_known_once_it_was_asked_with_it_among_the_feeds(
    tmp_path: Path, channel: FakeChannel, shipping: ShippingPlan
) -> None:
    assert not shipping.position_is_known(KEY)
    channel.is_down = True
    with pytest.raises(ConnectionError):
        shipping.step(channel, now=0, clock=0)
    assert not shipping.position_is_known(KEY)
    channel.is_down = False
    shipping.step(channel, now=0, clock=1)
    assert shipping.position_is_known(KEY)
    shipping.add(ReplicaKey(8, 1), tmp_path / "other")
    assert not shipping.position_is_known(ReplicaKey(8, 1))
    shipping.step(channel, now=0, clock=1)
    assert shipping.position_is_known(ReplicaKey(8, 1))


def test_a_failure_on_the_way_moves_nothing(tmp_path: Path, channel: FakeChannel, shipping: ShippingPlan) -> None:
    shipping.step(channel, now=0, clock=0)
    write(tmp_path, b"one")
    channel.is_down = True
    for clock in (0.1, 0.2, 5.0):
        with pytest.raises(ConnectionError):
            shipping.step(channel, now=0, clock=clock)
    channel.is_down = False
    shipping.step(channel, now=0, clock=6.0)
    channel.ingest()
    assert channel.stored[FIELD] == [b"one"]


@settings(max_examples=40, deadline=None)
@given(
    events=st.lists(
        st.sampled_from(["write", "step", "ingest", "lose", "down", "up", "restart", "wait"]),
        max_size=40,
    )
)
def test_whatever_happens_everything_arrives_once_in_order(
    tmp_path_factory: pytest.TempPathFactory, events: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    channel = FakeChannel()
    shipping = ShippingPlan(node_id=NODE, key=SECRET)
    shipping.add(KEY, folder)
    written: list[bytes] = []
    clock = 0.0

    def step() -> None:
        try:
            shipping.step(channel, now=0, clock=clock)
        except ConnectionError:
            assert channel.is_down

    for event in events:
        clock += 0.3
        if event == "write":
            written.append(b"%d" % len(written))
            write(folder, written[-1])
        elif event == "ingest":
            channel.ingest()
        elif event == "lose":
            channel.waiting.clear()
        elif event in ("down", "up"):
            channel.is_down = event == "down"
        elif event == "restart":
            shipping = ShippingPlan(node_id=NODE, key=SECRET)
            shipping.add(KEY, folder)
        elif event == "wait":
            clock += RESEND_S
        step()
    channel.is_down = False
    for _ in range(6):
        clock += RESEND_S
        step()
        channel.ingest()
    assert channel.stored.get(FIELD, []) == written


def test_what_has_ended_is_not_looked_at_again_and_is_repeated_when_lost(shipping, channel, tmp_path, monkeypatch):
    write(tmp_path, b"a", b"b")
    shipping.finish(KEY)
    assert shipping.step(channel, now=1, clock=0)
    looks = []
    read = Reader.read
    monkeypatch.setattr(Reader, "read", lambda self, **most: looks.append(self) or read(self, **most))
    assert shipping.step(channel, now=1, clock=0.1)
    assert looks == []
    channel.waiting.clear()
    shipping.step(channel, now=1, clock=RESEND_S + 1)
    channel.ingest()
    assert channel.stored[FIELD] == [b"a", b"b"]
