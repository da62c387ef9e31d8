"""Live events, control plane → browser: their types, the names of their groups, and `announce`, which sends on commit.

Services and ingest build events with the constructors here and nowhere else. Events are JSON-safe as built (messages
of the protocol, and builtin types; numbers that JSON cannot carry are words, see `jsonable`), so a consumer forwards
them as they are. A page joins a group, takes
a snapshot, then applies what is newer; an event that is lost shows as a hole in the offsets, and the page asks again.
"""

import json
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from functools import partial
from typing import Any, TypedDict

import msgspec
from channels.layers import get_channel_layer
from django.db import transaction

from orchestrator.domain.words import storable
from orchestrator.models import Artifact, Event, Node, Replica
from worker_agent.protocol.codec import plain

logger = logging.getLogger(__name__)

JOBS = "jobs"
MACHINES = "machines"
LOG_TEXT_CHARS = 65_536

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
LiveEvent = dict[str, Any]
Announced = LiveEvent | Callable[[], LiveEvent]


class Columns(TypedDict):
    """Points of one series: equally long lists, values JSON-safe."""

    steps: list[int]
    times: list[float]
    values: list[float | str]


_gathering: ContextVar[dict[str, list[Announced]] | None] = ContextVar("live_gathering", default=None)


def job_group(job_id: int) -> str:
    """The group of one job's page."""
    return f"job.{job_id}"


def node_group(node_id: str) -> str:
    """The group of one node's page."""
    return f"node.{node_id}"


def load_group(node_id: str) -> str:
    """The group of the pages that show the load of one node."""
    return f"load.{node_id}"


def announce(group: str, events: Sequence[LiveEvent]) -> None:
    """Send `events` to everyone in `group` when the transaction commits (at once outside of one), as one message."""
    if events:
        transaction.on_commit(partial(_deliver, group, list(events)))


def announce_each(messages: Mapping[str, Sequence[Announced]]) -> None:
    """The same for many groups. An event that comes many times a second may be a function that makes it, which is
    called if somebody listens."""
    transaction.on_commit(partial(_deliver_each, messages))


@contextmanager
def gathered() -> Iterator[None]:
    """Within this, what commits is kept and leaves at the end: one message per group, however many announcements."""
    kept: dict[str, list[Announced]] = {}
    token = _gathering.set(kept)
    try:
        yield
    finally:
        _gathering.reset(token)
        _send(kept)


def job_changed(summary: object) -> LiveEvent:
    """The job as it is now (`queries.jobs.JobSummary`): its status changed, or what it waits for."""
    return {"kind": "job", "job": jsonable(plain(summary))}


def job_advanced(advance: Mapping[str, object]) -> LiveEvent:
    """What changes of a summary as the job trains (`queries.jobs.advance`): for pages that have the rest."""
    return {"kind": "progress", "job": advance}


def replicas_changed() -> LiveEvent:
    """Rows of replicas changed: the page fetches their partial again."""
    return {"kind": "replicas"}


def points_stored(replica: Replica, *, start: int, end: int, series: Mapping[str, Columns]) -> LiveEvent:
    """New points of a replica; [`start`, `end`) is the part of its trainer stream they came from."""
    told = {"kind": "points", "incarnation": replica.incarnation, "start": start, "end": end, "series": series}
    return _named(replica) | told


def log_stored(
    replica: Replica, *, start: int, end: int, at: float, text: str, series: Mapping[str, Columns] | None = None
) -> LiveEvent:
    """New output, bytes [`start`, `end`) of the replica's log, and the points that were found in it. Of a flood only
    the last part travels; REST has all."""
    if len(text) > LOG_TEXT_CHARS:
        text = f"… {len(text) - LOG_TEXT_CHARS} characters are in the log but not shown here\n{text[-LOG_TEXT_CHARS:]}"
    told = {"kind": "log", "incarnation": replica.incarnation, "start": start, "end": end, "at": at, "text": text}
    return _named(replica) | told | {"series": series or {}}


def event_written(event: Event) -> LiveEvent:
    """A line of history."""
    return {
        "kind": "event",
        "id": event.pk,
        "at": event.at.isoformat(),
        "text": event.text,
        "event_kind": event.kind,
        "attempt": event.attempt,
    }


def artifact_stored(artifact: Artifact) -> LiveEvent:
    """A file that the job left can be downloaded."""
    return {
        "kind": "artifact",
        "id": artifact.pk,
        "attempt": artifact.attempt,
        "name": artifact.name,
        "artifact_kind": artifact.kind,
        "size_bytes": artifact.size_bytes,
        "metrics": jsonable(artifact.metrics),
    }


def files_changed() -> LiveEvent:
    """Files of a script came, or will not be kept: the page fetches its partial again."""
    return {"kind": "files"}


def checkpoints_changed() -> LiveEvent:
    """A checkpoint was written, has arrived or was dropped: the page fetches its partial again."""
    return {"kind": "checkpoints"}


def sample_taken(node_id: str, *, sample: object, holding: object) -> LiveEvent:
    """A node's load now (`protocol.reports.Sample`), and that of each process it holds (`RunningReplica`)."""
    return {"kind": "sample", "node_id": node_id, "sample": sample, "replicas": holding}


def node_changed(node: Node) -> LiveEvent:
    """A node's state or inventory changed."""
    return {"kind": "node", "node_id": node.pk, "state": node.state, "reason": node.state_reason}


def jsonable(value: object) -> Json:
    """`value` with the numbers that JSON lacks as words: "NaN", "Infinity", "-Infinity", and its texts and keys as a
    database takes them (`storable`)."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else json.dumps(value)
    if isinstance(value, str):
        return storable(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {storable(str(key)): jsonable(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [jsonable(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no JSON form")


def made(events: Sequence[Announced]) -> list[LiveEvent]:
    """Events, those made that were announced by what makes them."""
    return [event() if callable(event) else event for event in events]


def frame(events: Sequence[Announced]) -> str:
    """The text that pages receive: made once, and forwarded as it is to every page of the group."""
    return msgspec.json.encode({"type": "events", "events": made(events)}).decode()


def _named(replica: Replica) -> LiveEvent:
    return {"replica": str(replica), "replica_id": replica.pk, "attempt": replica.attempt}


def _deliver(group: str, events: list[LiveEvent]) -> None:
    _deliver_each({group: events})


def _deliver_each(messages: Mapping[str, Sequence[Announced]]) -> None:
    kept = _gathering.get()
    if kept is None:
        _send(messages)
    else:
        for group, events in messages.items():
            kept.setdefault(group, []).extend(events)


def _send(messages: Mapping[str, Sequence[Announced]]) -> None:
    """Hand what somebody listens to to the channel layer (`dashboard/sockets/layer.py`). Who joins after it was asked
    finds the rest in the snapshot, which is read after joining: what is sent here has been committed.

    Pages heal holes by themselves, so a layer that is down only costs time.
    """
    if not messages:
        return
    try:
        layer = get_channel_layer()
        if heard := layer.heard(list(messages)):
            layer.publish({group: frame(messages[group]) for group in heard})
    except Exception:
        logger.warning("live events for %s were not sent", ", ".join(messages), exc_info=True)
