"""Log text of replicas: what they said becomes chunks, placed by byte in all that each wrote. `records` calls this."""

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import NamedTuple

from orchestrator.domain.words import storable
from orchestrator.many_rows import update_rows
from orchestrator.models import LogChunk, Replica
from orchestrator.queries.telemetry import LOG_CHUNK_BYTES
from worker_agent.protocol.records import Gap, Log

SAME_CHUNK_S = 1.0


class Output(NamedTuple):
    """A piece of log as stored: bytes [`start`, `end`), said at `at` (unix s)."""

    start: int
    end: int
    at: float
    text: str


def store(said: Mapping[Replica, Sequence[Log | Gap]]) -> dict[int, list[Output]]:
    """Append what replicas said to their logs and move `log_size`; returns the new pieces by replica id."""
    pieces = {replica: _placed(replica, records) for replica, records in said.items()}
    grown = {replica: found for replica, found in pieces.items() if found}
    if not grown:
        return {}
    LogChunk.objects.bulk_create(
        LogChunk(replica=replica, start=piece.start, end=piece.end, at=piece.at, text=piece.text)
        for replica, found in grown.items()
        for piece in found
    )
    for replica, found in grown.items():
        replica.log_size = found[-1].end
    update_rows(Replica, {replica.pk: (replica.log_size,) for replica in grown}, columns=["log_size"])
    return {replica.pk: found for replica, found in grown.items()}


def _placed(replica: Replica, records: Sequence[Log | Gap]) -> list[Output]:
    """Neighbours said within a second share a chunk; nothing is longer than LOG_CHUNK_BYTES."""
    groups: list[tuple[float, bytearray]] = []
    for record in records:
        data = storable(_text(record, replica, groups)).encode()
        at, written = groups[-1] if groups else (-inf, bytearray())
        if len(written) + len(data) <= LOG_CHUNK_BYTES and abs(record.at - at) <= SAME_CHUNK_S:
            written += data
        else:
            groups.append((record.at, bytearray(data)))
    found, offset = [], replica.log_size
    for at, written in groups:
        for data in _cut(bytes(written)):
            found.append(Output(offset, offset + len(data), at, data.decode()))
            offset += len(data)
    return found


def _text(record: Log | Gap, replica: Replica, before: list[tuple[float, bytearray]]) -> str:
    if isinstance(record, Log):
        return record.text
    line = f"… {record.size_bytes:,} bytes of output were left out ({record.reason})\n"
    return line if _at_line_start(replica, before) else f"\n{line}"


def _at_line_start(replica: Replica, before: list[tuple[float, bytearray]]) -> bool:
    for _, written in reversed(before):
        if written:
            return written.endswith(b"\n")
    last = LogChunk.objects.filter(replica=replica).order_by("-start").values_list("text", flat=True).first()
    return last is None or last.endswith("\n")


def _cut(data: bytes) -> Iterator[bytes]:
    """Whole characters in pieces of at most LOG_CHUNK_BYTES."""
    begin = 0
    while begin < len(data):
        end = min(begin + LOG_CHUNK_BYTES, len(data))
        while end < len(data) and data[end] & 0xC0 == 0x80:
            end -= 1
        yield data[begin:end]
        begin = end
