"""What a replica's folder on the node holds besides its plan, and how shim and daemon write it.

`shim.json` (who the shim is), `stop.json` (that it is to end, and why), `shim.lock` (held by the shim while it lives),
the spool with its last record, and the datagram that wakes the shipper. `shim.log` is what a shim that was started cold
says itself; `result.json` what was found where a program is only tried.
"""

import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from worker_agent.machine.files import read_json, write_json
from worker_agent.machine.processes import Identity
from worker_agent.protocol.codec import decode_record, encode
from worker_agent.protocol.ending import Ending
from worker_agent.protocol.records import Exit, Leftover, Stream
from worker_agent.replica.spool import HEADER_BYTES, Writer, last_records, stream_length
from worker_agent.replica.verdict import StopRequest

PLAN_FILE = "plan.json"
LOCK_FILE = "shim.lock"
SHIM_LOG = "shim.log"
RESULT_FILE = "result.json"

_SHIM_FILE = "shim.json"
_STOP_FILE = "stop.json"


class ShimState(msgspec.Struct, frozen=True, kw_only=True):
    """`shim.json`: who the shim is, the training process that it owns (0 before it is started), which leads a process
    group, and the control group of the replica ("" where it has none)."""

    shim: Identity
    child_pid: int = 0
    group: str = ""


def write_shim_state(folder: Path, state: ShimState) -> None:
    """Say who the shim is."""
    write_json(folder / _SHIM_FILE, state)


def read_shim_state(folder: Path) -> ShimState | None:
    """Who the shim is, once it has said so."""
    return read_json(folder / _SHIM_FILE, ShimState)


def write_stop(folder: Path, request: StopRequest) -> None:
    """Ask for the end; the shim reads it when it gets SIGTERM, or before it starts anything. What was asked for first
    stays, unless it yields to this."""
    first = read_stop(folder)
    if first is None or first.yields_to(request):
        write_json(folder / _STOP_FILE, request)


def read_stop(folder: Path) -> StopRequest | None:
    """The stop that was asked for, if any."""
    return read_json(folder / _STOP_FILE, StopRequest)


def append_exit(
    writer: Writer, spool: Path, *, ending: Ending, message: str, leftovers: Sequence[Leftover] = ()
) -> None:
    """Append (not flush) the Exit record, with the final length of both streams, this record included, and what could
    not be given back."""
    trainer = stream_length(spool / Stream.TRAINER)
    final = 0
    while True:
        record = Exit(
            at=time.time(),
            code=ending.code,
            signal=ending.signal,
            cause=ending.cause,
            message=message,
            ending=ending,
            final={Stream.TRAINER.value: trainer, Stream.SHIM.value: final},
            leftovers=list(leftovers),
        )
        payload = encode(record)
        end = writer.end + HEADER_BYTES + len(payload)
        if end == final:
            writer.append(payload)
            return
        final = end


def find_exit(spool: Path) -> Exit | None:
    """The Exit record of a replica, once it is written."""
    records = last_records(spool / Stream.SHIM, segments=1)
    last = decode_record(records[-1]) if records else None
    return last if isinstance(last, Exit) else None
