"""One batch of reports, applied in one transaction: heartbeats, acknowledgements of commands, answers of preflights,
and output of replicas.

Ingest calls `apply` with reports whose signature it has checked. What is announced leaves when the transaction commits.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from math import isfinite
from typing import NamedTuple

import msgspec
from django.db import transaction

from orchestrator import live, series
from orchestrator.domain.lifecycle import AGENT_AWAY
from orchestrator.domain.words import storable
from orchestrator.many_rows import update_rows
from orchestrator.models import Node, Replica
from orchestrator.services import transitions
from orchestrator.services.gang import gang
from orchestrator.services.intake import load, progress, records
from orchestrator.services.intake.records import Acks
from orchestrator.services.nodes import dirty
from orchestrator.services.trials import probing
from worker_agent.protocol.codec import plain
from worker_agent.protocol.joining import is_in_range
from worker_agent.protocol.reports import Ack, Goodbye, Heartbeat, Hello, Probed, Records, Report
from worker_agent.protocol.states import NodeState

CLOCK_TRUSTED_S = 300.0


class Sender(NamedTuple):
    """A node as far as the reports need it that come all the time: heartbeats and records."""

    pk: str
    key: bytes
    state: str


def senders(node_ids: Iterable[str]) -> dict[str, Sender]:
    """Those of the nodes that there are."""
    rows = Node.objects.filter(pk__in=set(node_ids)).order_by().values_list("pk", "key", "state")
    return {pk: Sender(pk, bytes(key), state) for pk, key, state in rows}


def apply(batch: Sequence[tuple[Sender, Report]], *, now: datetime) -> Acks:
    """Store a batch; returns which part of each stream the nodes may forget."""
    heartbeats = [(sender, report) for sender, report in batch if isinstance(report, Heartbeat)]
    slices = [(sender.pk, report) for sender, report in batch if isinstance(report, Records)]
    with transaction.atomic():
        if heartbeats:
            _store_load(heartbeats, now=now)
        if rare := [(sender.pk, report) for sender, report in batch if _needs_row(sender, report)]:
            _apply_rare(rare, now=now)
        return records.store(slices, now=now) if slices else {}


def forget() -> None:
    """What is remembered between batches may be ahead of the tables: a transaction has failed, or this is not the only
    ingest any more."""
    series.appends.forget()
    progress.known.forget()


def _needs_row(sender: Sender, report: Report) -> bool:
    """Whether more is to be done than to store numbers."""
    if isinstance(report, Heartbeat):
        return bool(report.leftovers) or sender.state in AGENT_AWAY
    return not isinstance(report, Records)


def _apply_rare(batch: Sequence[tuple[str, Report]], *, now: datetime) -> None:
    """Reports that move something, or tell of leftovers."""
    rows = Node.objects.select_related("cluster").in_bulk({node_id for node_id, _ in batch})
    found = [(rows[node_id], report) for node_id, report in batch if node_id in rows]
    hellos = {node.pk: (node, report) for node, report in found if isinstance(report, Hello)}
    left = {
        node.pk: (node, isinstance(report, Goodbye)) for node, report in found if isinstance(report, Hello | Goodbye)
    }
    heartbeats = [(node, report) for node, report in found if isinstance(report, Heartbeat)]
    for node, hello in hellos.values():
        _greet(node, hello, now=now)
    for node, heartbeat in heartbeats:
        if node.dirty:
            dirty.update(node=node, leftovers=heartbeat.leftovers)
    for node in {node.pk: node for node, _ in [*hellos.values(), *heartbeats]}.values():
        if node.state == NodeState.LOST or (node.state == NodeState.LEAVING and node.pk in hellos):
            _welcome_back(node, now=now)
    for node, has_left in left.values():
        if has_left and node.state not in AGENT_AWAY:
            _part(node, now=now)
    for node, report in found:
        if isinstance(report, Ack):
            gang.on_ack(node=node, command_id=report.command_id, refused=report.refused, now=now)
    for node, report in found:
        if isinstance(report, Probed):
            probing.on_probed(node=node, report=report, now=now)


def skip(sender: Sender, report: Records, *, why: str, now: datetime) -> Acks:
    """Pass over a part of a stream that cannot be stored, and say so in the job's history."""
    empty = msgspec.structs.replace(report, offsets=[], records=[])
    with transaction.atomic():
        replica = Replica.objects.select_related("job").filter(pk=report.replica_id).first()
        if replica is not None:
            records.note_skipped(replica, why=why)
        return records.store([(sender.pk, empty)], now=now)


def _greet(node: Node, hello: Hello, *, now: datetime) -> None:
    """An agent has started: what it has, and where it is reached, may be new. What it holds it says with its first
    heartbeat; until then nothing is missing."""
    address = storable(hello.address).strip()[:255] or node.address
    inventory = live.jsonable(plain(hello.inventory))
    Node.objects.filter(pk=node.pk).update(inventory=inventory, address=address, last_seen_at=now)
    Replica.objects.filter(node=node).exclude(absent_since=None).update(absent_since=None)
    moved = f" Its address changed from {node.address} to {address}." if address != node.address else ""
    asked = node.cluster.address_range
    away = "" if is_in_range(address, asked) else f" {address} is not in {asked}, the range of the cluster."
    text = f"The agent of {node.name} started (version {hello.inventory.agent}).{moved}{away}"
    transitions.record(kind="agent_started", text=text, node=node)
    live.announce(live.MACHINES, [live.node_changed(node)])


def _store_load(heartbeats: Sequence[tuple[Sender, Heartbeat]], *, now: datetime) -> None:
    """Keep every sample for the curves of the node, the latest one on the node's row, and show the latest."""
    kept = [load.taken(sender.pk, _trusted(beat.sample.at, now), beat.sample) for sender, beat in heartbeats]
    transaction.on_commit(partial(load.load.keep, kept, now=now))
    latest: dict[str, Sequence[object]] = {
        taken.node_id: (
            _json_safe(beat.sample, taken.values),
            _json_safe(beat.replicas, [each.cpu_percent for each in beat.replicas]),
        )
        for taken, (_, beat) in zip(kept, heartbeats, strict=True)
    }
    update_rows(Node, latest, columns=["sample", "holding"], same={"last_seen_at": now})
    told = {pk: live.sample_taken(pk, sample=sample, holding=holding) for pk, (sample, holding) in latest.items()}
    live.announce_each({live.load_group(pk): [told[pk]] for pk in told})
    at_work = {sender.pk for sender, beat in heartbeats if beat.replicas}
    watched = Replica.objects.filter(node__in=at_work, held=True).values_list("job_id", "node_id").distinct()
    for job_id, node_id in watched:
        live.announce(live.job_group(job_id), [told[str(node_id)]])


def _json_safe(message: object, numbers: Iterable[float]) -> object:
    """The message, as builtin types with words where one of its numbers is nothing that JSON carries."""
    return message if all(map(isfinite, numbers)) else live.jsonable(plain(message))


def _trusted(at: float, now: datetime) -> float:
    """When a sample was taken by the node's clock, unless that is set wrong."""
    return at if abs(at - now.timestamp()) <= CLOCK_TRUSTED_S else now.timestamp()


def _part(node: Node, *, now: datetime) -> None:
    """An agent ends in good order. What it left running is found again by the next one, or given up when it is lost."""
    reason = f"Its agent was told to end at {now:%H:%M:%S} UTC"
    transitions.move_node(
        node=node, to=NodeState.LEAVING, now=now, reason=reason, text=f"{node.name} is leaving. {reason}."
    )


def _welcome_back(node: Node, *, now: datetime) -> None:
    """The agent of a node that had left or was given up is back: the node stands where it stood before."""
    to = NodeState(node.state_before_away or NodeState.READY)
    transitions.move_node(node=node, to=to, now=now, reason="", text=f"{node.name} is back.")
