"""The spool: nothing is lost, doubled or half seen, whatever happens to the end of a file."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker_agent.protocol.codec import decode_record
from worker_agent.protocol.records import Gap
from worker_agent.replica.spool import MAX_RECORD_BYTES, Reader, Writer, last_records, stream_length


def written(folder: Path, records: list[bytes], *, segment_bytes: int = 1 << 20) -> Writer:
    writer = Writer(folder, segment_bytes=segment_bytes)
    for record in records:
        writer.append(record)
        writer.flush()
    return writer


def everything(folder: Path, offset: int = 0) -> list[bytes]:
    reader, records = Reader(folder, offset), []
    while batch := reader.read().records:
        records += batch
    return records


def segments(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def test_what_was_appended_is_read_in_order(tmp_path: Path) -> None:
    written(tmp_path, [b"one", b"two", b"three"]).close()
    batch = Reader(tmp_path).read()
    assert batch.records == [b"one", b"two", b"three"]
    assert (batch.start, batch.end) == (0, stream_length(tmp_path))
    assert batch.offsets == [11, 22, 35]


def test_nothing_is_visible_before_the_flush(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.append(b"hidden")
    assert everything(tmp_path) == []
    assert (writer.pending_bytes, writer.end) == (14, 14)
    writer.flush()
    assert everything(tmp_path) == [b"hidden"]
    writer.close()


def test_after_a_power_cut_it_goes_on_behind_what_is_stored_elsewhere(tmp_path: Path) -> None:
    writer = written(tmp_path, [b"kept", b"shipped, but never on the disk"])
    stored = writer.end
    writer.close()
    os.truncate(segments(tmp_path)[-1], 12)  # the first record
    Reader(tmp_path).acknowledge(stored)
    written(tmp_path, [b"the end"]).close()
    assert everything(tmp_path, stored) == [b"the end"]
    assert stream_length(tmp_path) == stored + 15
    assert last_records(tmp_path, segments=1) == [b"the end"]
    gap = decode_record(everything(tmp_path)[1])
    assert isinstance(gap, Gap)
    assert gap.size_bytes == stored - 12


def test_limits_of_one_read(tmp_path: Path) -> None:
    written(tmp_path, [b"x" * 100] * 10).close()
    reader = Reader(tmp_path)
    assert len(reader.read(max_records=3).records) == 3
    assert len(reader.read(max_bytes=250).records) == 2
    assert len(reader.read(max_bytes=1).records) == 1
    assert len(reader.read().records) == 4
    assert reader.read().records == []


def test_reading_goes_on_from_any_record_boundary(tmp_path: Path) -> None:
    records = [bytes([n]) * (n + 1) for n in range(20)]
    written(tmp_path, records, segment_bytes=64).close()
    for index, offset in enumerate(Reader(tmp_path).read().offsets):
        assert everything(tmp_path, offset) == records[index + 1 :]


def test_a_segment_that_cannot_be_made_is_made_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = written(tmp_path, [b"y" * 40], segment_bytes=60)
    writer.append(b"z" * 40)
    with monkeypatch.context() as full:
        full.setattr(os, "open", _refuse)
        with pytest.raises(OSError, match="no space"):
            writer.flush()
    writer.flush()
    writer.close()
    assert Reader(tmp_path).read().records == [b"y" * 40, b"z" * 40]
    assert len(segments(tmp_path)) == 2


def test_segments_are_named_by_their_first_offset(tmp_path: Path) -> None:
    written(tmp_path, [b"y" * 40] * 5, segment_bytes=100).close()
    assert [path.name for path in segments(tmp_path)] == [f"{n:020d}" for n in (0, 96, 192)]
    assert everything(tmp_path) == [b"y" * 40] * 5
    assert last_records(tmp_path) == [b"y" * 40] * 3


def test_a_torn_tail_is_invisible_and_cut_off_by_the_next_writer(tmp_path: Path) -> None:
    written(tmp_path, [b"whole", b"torn away"]).close()
    path = segments(tmp_path)[0]
    os.truncate(path, path.stat().st_size - 3)
    assert everything(tmp_path) == [b"whole"]
    assert stream_length(tmp_path) == 13
    written(tmp_path, [b"after"]).close()
    assert everything(tmp_path) == [b"whole", b"after"]


def test_a_tail_of_zeroes_left_by_a_power_cut_is_not_a_record(tmp_path: Path) -> None:
    written(tmp_path, [b"whole"]).close()
    path = segments(tmp_path)[0]
    os.truncate(path, path.stat().st_size + 4096)
    assert everything(tmp_path) == [b"whole"]
    written(tmp_path, [b"after"]).close()
    assert everything(tmp_path) == [b"whole", b"after"]


def test_damage_in_the_middle_becomes_a_counted_gap(tmp_path: Path) -> None:
    written(tmp_path, [b"before", b"damaged", b"behind"]).close()
    path = segments(tmp_path)[0]
    data = bytearray(path.read_bytes())
    data[14 + 8] ^= 0xFF
    path.write_bytes(data)
    first, gap, last = everything(tmp_path)
    assert (first, last) == (b"before", b"behind")
    record = decode_record(gap)
    assert isinstance(record, Gap)
    assert record.size_bytes == 15
    assert Reader(tmp_path).read().offsets == [14, 29, 43]


def test_a_lost_segment_becomes_a_counted_gap(tmp_path: Path) -> None:
    written(tmp_path, [b"a" * 40, b"b" * 40, b"c" * 40], segment_bytes=50).close()
    segments(tmp_path)[1].unlink()
    first, gap, last = everything(tmp_path)
    assert (first, last) == (b"a" * 40, b"c" * 40)
    record = decode_record(gap)
    assert isinstance(record, Gap)
    assert record.size_bytes == 48


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = written(tmp_path, [b"first"])
    real_write = os.write

    def half_then_full(file: int, data: memoryview) -> int:
        if len(data) > 5:
            return real_write(file, bytes(data[:5]))
        raise OSError(28, "No space left on device")

    writer.append(b"23456")
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", half_then_full)
        with pytest.raises(OSError, match="No space left"):
            writer.flush()
    assert everything(tmp_path) == [b"first"]
    assert segments(tmp_path)[0].stat().st_size == 13
    writer.close()
    assert everything(tmp_path) == [b"first", b"23456"]


@pytest.mark.parametrize("payload", [b"", b"z" * (MAX_RECORD_BYTES + 1)])
def test_records_that_could_never_be_shipped_are_refused(tmp_path: Path, payload: bytes) -> None:
    with pytest.raises(ValueError, match="a record has"):
        Writer(tmp_path).append(payload)


@settings(max_examples=60, deadline=None)
@given(
    records=st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=25),
    segment_bytes=st.integers(20, 200),
    cut=st.integers(0, 400),
    max_records=st.integers(1, 7),
    max_bytes=st.integers(1, 100),
)
def test_any_cut_leaves_a_readable_beginning(
    tmp_path_factory: pytest.TempPathFactory,
    records: list[bytes],
    segment_bytes: int,
    cut: int,
    max_records: int,
    max_bytes: int,
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    written(folder, records, segment_bytes=segment_bytes).close()
    last = segments(folder)[-1]
    os.truncate(last, max(0, last.stat().st_size - cut))
    kept = everything(folder)
    assert kept == records[: len(kept)]
    written(folder, [b"next"], segment_bytes=segment_bytes).close()
    reader, seen = Reader(folder), []
    while (batch := reader.read(max_records=max_records, max_bytes=max_bytes)).records:
        assert len(batch.records) <= max_records
        assert len(batch.records) == 1 or sum(map(len, batch.records)) <= max_bytes
        assert batch.offsets[-1] == batch.end
        seen += batch.records
    assert seen == [*kept, b"next"]
    assert reader.offset == stream_length(folder)


def _refuse(*_: object, **__: object) -> int:
    raise OSError("no space left on device")
