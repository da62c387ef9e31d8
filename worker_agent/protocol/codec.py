"""Bytes ↔ messages: msgpack on the wire and in spools, JSON for files a person may open.

A sender cannot add unknown fields (they are struct fields); a receiver ignores fields of newer peers.
"""

from typing import Any, TypeVar

import msgspec

from worker_agent.protocol.commands import Command
from worker_agent.protocol.plan import Plan
from worker_agent.protocol.records import Record
from worker_agent.protocol.reports import Heartbeat, Report

M = TypeVar("M")


class _Tagged(msgspec.Struct):
    """What a tagged message says that it is."""

    type: str


_encoder = msgspec.msgpack.Encoder()
_tagged: msgspec.msgpack.Decoder[_Tagged] = msgspec.msgpack.Decoder(_Tagged)
_command: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)
_report: msgspec.msgpack.Decoder[Report] = msgspec.msgpack.Decoder(Report)
_record: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)
_plan = msgspec.json.Decoder(Plan)


def encode(message: object) -> bytes:
    """Any protocol message as msgpack."""
    return _encoder.encode(message)


def decode_command(data: bytes) -> Command:
    """A command; raises `msgspec.DecodeError` on anything else."""
    return _decode(_command, data)


def decode_report(data: bytes) -> Report:
    """A report; raises `msgspec.DecodeError` on anything else."""
    return _decode(_report, data)


def is_heartbeat(data: bytes) -> bool:
    """Whether a report says that it is a heartbeat; it may still be one that does not decode."""
    try:
        return _decode(_tagged, data).type == Heartbeat.__struct_config__.tag
    except msgspec.DecodeError:
        return False


def decode_record(data: bytes) -> Record:
    """A spool record; raises `msgspec.DecodeError` on anything else."""
    return _decode(_record, data)


def encode_plan(plan: Plan) -> bytes:
    """`plan.json` as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(plan), indent=2)


def decode_plan(data: bytes) -> Plan:
    """The content of a `plan.json`; raises `msgspec.DecodeError`."""
    return _decode(_plan, data)


def plain(message: object) -> Any:
    """A message as builtin types (for JSON columns): enums become strings, structs become dicts."""
    return msgspec.to_builtins(message)


def typed(data: object, kind: type[M]) -> M:
    """Builtin types back to the message `kind`; raises `msgspec.ValidationError`."""
    return msgspec.convert(data, kind)


def _decode(decoder: msgspec.msgpack.Decoder[M] | msgspec.json.Decoder[M], data: bytes) -> M:
    """Decode, with one kind of error: msgspec lets bad UTF-8 and endless nesting out as they are."""
    try:
        return decoder.decode(data)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from error
