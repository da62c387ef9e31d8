"""The spool: append-only files in which what a replica says waits on the node's disk until it is acknowledged.

One folder is one stream with one writer (the training process, or its shim) and any number of readers (the agent's
shipper). A position in the stream is a byte offset that never changes meaning; it is the sequence number of everything
that is shipped. Layout: segments of about `SEGMENT_BYTES`, each a file named by the 20-digit offset of its first byte;
a record is u32 length, u32 CRC-32 of the payload (both little endian), payload. What is not whole yet at the end is
invisible to readers. What was damaged further in is handed out as a counted `Gap` record in its place.

Nothing is synced to the disk record by record, but every `SYNC_S` (`Writer.publish`), so up to one such interval can
be lost when the machine loses power, and nothing when a process dies.

A file beside the segments holds the offset up to which the stream is stored with the control plane, for its writer.
"""

import contextlib
import os
import socket
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from worker_agent.protocol.codec import encode
from worker_agent.protocol.records import Gap

SEGMENT_BYTES = 8 * 1024 * 1024
MAX_RECORD_BYTES = 1024 * 1024
SYNC_S = 0.2

_ACKNOWLEDGED = "acknowledged"
_HEADER = struct.Struct("<II")
HEADER_BYTES = _HEADER.size
_NAME_DIGITS = 20
# Enough for a damaged record and the one behind it.
_READ_BYTES = 3 * (MAX_RECORD_BYTES + HEADER_BYTES)


class Slice(NamedTuple):
    """Records of the stream between the offsets `start` and `end`; `offsets[i]` is just behind `records[i]`."""

    start: int
    end: int
    offsets: list[int]
    records: list[bytes]


class Writer:
    """Appends records. Continues behind the last whole record of an existing stream, cutting off a torn tail; but never
    before what is known to be stored with the control plane, of which a power cut may have taken the last away.

    One thread at a time. `append` only buffers; `flush` makes everything visible to readers with one write.
    """

    def __init__(self, folder: Path | str, *, notify: str = "", segment_bytes: int = SEGMENT_BYTES) -> None:
        self._notify = notify
        self._synced_at = 0.0
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._segment_bytes = segment_bytes
        starts = _segment_starts(self._folder)
        self._start = starts[-1] if starts else 0
        self._end = stream_length(self._folder)
        if (stored := self.acknowledged) > self._end:
            self._start = self._end = stored
        self._file = self._open_segment(self._start)
        os.ftruncate(self._file, self._end - self._start)
        self._buffer = bytearray()

    @property
    def end(self) -> int:
        """The length of the stream so far, unflushed records included."""
        return self._end + len(self._buffer)

    @property
    def pending_bytes(self) -> int:
        """What `append` took and `flush` has not written yet (it stays here while the disk is full)."""
        return len(self._buffer)

    @property
    def acknowledged(self) -> int:
        """Up to where the stream is known to be stored with the control plane; 0 while nobody has said so."""
        try:
            return int((self._folder / _ACKNOWLEDGED).read_bytes())
        except (OSError, ValueError):
            return 0

    def append(self, payload: bytes) -> None:
        """Take one record; raises ValueError when it is empty or larger than `MAX_RECORD_BYTES`."""
        if not 0 < len(payload) <= MAX_RECORD_BYTES:
            raise ValueError(f"a record has 1 to {MAX_RECORD_BYTES} bytes, not {len(payload)}")
        self._buffer += _HEADER.pack(len(payload), zlib.crc32(payload))
        self._buffer += payload

    def flush(self) -> None:
        """Write what was appended. On OSError (disk full) nothing is lost or half visible: flush again later."""
        if not self._buffer:
            return
        if self._end > self._start and self._end - self._start + len(self._buffer) > self._segment_bytes:
            self.sync()
            following = self._open_segment(self._end)
            os.close(self._file)
            self._start, self._file = self._end, following
        try:
            _write_all(self._file, self._buffer)
        except OSError:
            os.ftruncate(self._file, self._end - self._start)
            raise
        self._end += len(self._buffer)
        self._buffer = bytearray()

    def publish(self) -> None:
        """Flush, at times down to the platter, and tell the agent by an empty datagram to its socket. On a full
        disk what was appended stays buffered for the next time."""
        with contextlib.suppress(OSError):
            self.flush()
            notify(self._notify)
            if time.monotonic() - self._synced_at >= SYNC_S:
                self.sync()
                self._synced_at = time.monotonic()

    def sync(self) -> None:
        """Make flushed records survive a power cut."""
        os.fdatasync(self._file)

    def close(self) -> None:
        """Flush and let go of the file."""
        try:
            self.flush()
        finally:
            os.close(self._file)

    def _open_segment(self, start: int) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        return os.open(_segment_path(self._folder, start), flags, 0o600)


class Reader:
    """Reads a stream from `offset` on, while it is being written."""

    def __init__(self, folder: Path | str, offset: int = 0) -> None:
        self._folder = Path(folder)
        self.offset = offset

    def acknowledge(self, offset: int) -> None:
        """Tell the writer that the stream is stored up to here; raises OSError. Written over in place, at one go."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(self._folder / _ACKNOWLEDGED, flags, 0o600)
        try:
            os.pwrite(file, f"{offset:0{_NAME_DIGITS}d}".encode(), 0)
        finally:
            os.close(file)

    def read(self, *, max_records: int = 1000, max_bytes: int = 1_000_000) -> Slice:
        """The next whole records, moving `offset` behind them. Empty when there is nothing new.

        At least one record is given whatever its size; otherwise at most `max_bytes` of payload.
        """
        start = self.offset
        offsets: list[int] = []
        records: list[bytes] = []
        size_bytes = 0
        for payload, behind in self.records():
            size_bytes += len(payload)
            if records and size_bytes > max_bytes:
                break
            self.offset = behind
            offsets.append(behind)
            records.append(payload)
            if len(records) == max_records:
                break
        return Slice(start=start, end=self.offset, offsets=offsets, records=records)

    def records(self) -> Iterator[tuple[bytes, int]]:
        """Each whole record from `offset` on, or the gap in its place, and the offset behind it."""
        at = self.offset
        while True:
            starts = _segment_starts(self._folder)
            earlier = [start for start in starts if start <= at]
            data = b""
            if earlier:
                with _segment_path(self._folder, earlier[-1]).open("rb") as file:
                    file.seek(at - earlier[-1])
                    data = file.read(_READ_BYTES)
            position = 0
            while (payload := _record_at(data, position)) is not None:
                position += HEADER_BYTES + len(payload)
                yield payload, at + position
            if position == 0:
                until = _end_of_damage(data, at, following=next((start for start in starts if start > at), None))
                if until is None:
                    return
                gap = Gap(at=self._folder.stat().st_mtime, size_bytes=until - at, reason="damaged on the node's disk")
                yield encode(gap), until
                position = until - at
            at += position


def stream_length(folder: Path | str) -> int:
    """The offset behind the last whole record of a stream; 0 when there is none."""
    starts = _segment_starts(Path(folder))
    end = starts[-1] if starts else 0
    for _, behind in Reader(folder, end).records():
        end = behind
    return end


def last_records(folder: Path | str, *, segments: int = 2) -> list[bytes]:
    """The whole records of the last segments, oldest first: enough for what a process said last."""
    starts = _segment_starts(Path(folder))[-segments:]
    return [payload for payload, _ in Reader(folder, starts[0] if starts else 0).records()]


def notify(path: str) -> None:
    """Tell the agent that there is something new in the spool; never waits, never fails."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as out:
        out.sendto(b"", path)


def _segment_starts(folder: Path) -> list[int]:
    try:
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    return sorted(int(name) for name in names if len(name) == _NAME_DIGITS and name.isdecimal())


def _segment_path(folder: Path, start: int) -> Path:
    return folder / f"{start:0{_NAME_DIGITS}d}"


def _record_at(data: bytes, position: int) -> bytes | None:
    """The record that begins at `position` when it is whole and undamaged."""
    if len(data) - position < HEADER_BYTES:
        return None
    size, crc = _HEADER.unpack_from(data, position)
    begin = position + HEADER_BYTES
    if not 0 < size <= MAX_RECORD_BYTES or len(data) - begin < size:
        return None
    payload = data[begin : begin + size]
    return payload if zlib.crc32(payload) == crc else None


def _end_of_damage(data: bytes, at: int, *, following: int | None) -> int | None:
    """Where reading goes on behind what is not whole at the offset `at`, where `data` begins: at a whole record behind
    it, else with the segment `following`; None where it may yet become whole."""
    if len(data) >= HEADER_BYTES:
        behind: int = HEADER_BYTES + _HEADER.unpack_from(data)[0]
        if _record_at(data, behind) is not None:
            return at + behind
    return following


def _write_all(file: int, data: bytearray) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
