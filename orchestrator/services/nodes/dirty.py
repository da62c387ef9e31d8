"""Devices and ports that an ended replica could not give back. They are not used again until the node's agent has seen
that all is gone, or an administrator takes them into use all the same. Each of these leaves an event.

`Node.dirty` has a key for each: a device's index, or `port:20001`; and for each what was left, by which replica.
Placement reads it (`services/nodes/cluster_snapshot.py`), machine pages and REST show it.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from django.db import transaction

from orchestrator import enqueue
from orchestrator.models import Node, Replica, User
from orchestrator.queries import machines
from orchestrator.queries.errors import NotFound
from orchestrator.services import transitions
from orchestrator.services.errors import Forbidden
from worker_agent.protocol.records import Leftover, LeftoverKind
from worker_agent.protocol.reports import ReplicaLeftovers
from worker_agent.protocol.states import Cause

PORT = "port:"
WORDS_SHOWN = 5
WORDS_CHARS = 200


def devices(node: Node) -> frozenset[int]:
    """The indexes of the node's devices that are not used."""
    return frozenset(int(key) for key in node.dirty if key.isdecimal())


def ports(node: Node) -> frozenset[int]:
    """The node's ports that are not used."""
    return frozenset(int(key.removeprefix(PORT)) for key in node.dirty if key.startswith(PORT))


def note(*, replica: Replica, left: Sequence[Leftover], cause: Cause, now: datetime) -> None:
    """A replica has ended of this cause, and something is left on its node; where its port was taken, that is not its
    own. To be called in the transaction that stores its end."""
    node = Node.objects.select_for_update().filter(pk=replica.node_id).first() if left else None
    if node is None:
        return
    found = {
        "replica_id": replica.pk,
        "job": replica.job_id,
        "attempt": replica.attempt,
        "replica": replica.words,
        "left": _words(left),
        "since": now.astimezone(UTC).isoformat(),
    }
    keys = _keys(replica, left)
    _save(node, {**node.dirty, **dict.fromkeys(keys, found)})
    what = ", ".join(_words(left))
    foreign = cause is Cause.PORT_TAKEN and all(each.kind is LeftoverKind.PORT for each in left)
    said = "found its port taken" if foreign else "has ended, but not everything of it"
    text = f"{replica.words} of j-{replica.job_id} {said}: {what}. {_not_used(node, keys)}"
    transitions.record(kind="device_dirty", text=text, node=node, replica=replica)


def update(*, node: Node, leftovers: Sequence[ReplicaLeftovers]) -> None:
    """What the node's agent sees now of what was left there."""
    seen = {each.replica_id: each.leftovers for each in leftovers}
    if not any(entry["replica_id"] in seen for entry in node.dirty.values()):
        return
    row = Node.objects.select_for_update().get(pk=node.pk)
    gone = {key: entry for key, entry in row.dirty.items() if seen.get(entry["replica_id"]) == []}
    present = {
        key: entry | {"left": _words(seen[entry["replica_id"]])} if entry["replica_id"] in seen else entry
        for key, entry in row.dirty.items()
        if key not in gone
    }
    names = _names(row, gone)
    if present != row.dirty:
        _save(row, present)
    if gone:
        what = ", ".join(dict.fromkeys(word for entry in gone.values() for word in entry["left"]))
        text = f"What was left on {row.name} is gone ({what}): {names} can be used again."
        transitions.record(kind="device_clean", text=text, node=row)
        enqueue.dispatch_waiting()


def reclaim(*, node_id: str, by: User, reason: str = "") -> Node:
    """Use the node's devices and ports again, whatever was left there. For administrators."""
    if not by.may_administer:
        raise Forbidden("Only administrators may change machines.")
    reason = reason.replace("\0", "").strip()
    with transaction.atomic():
        node = Node.objects.select_for_update(of=("self",)).select_related("cluster").filter(pk=node_id).first()
        if node is None:
            raise NotFound(f"There is no node {node_id}.")
        if node.dirty:
            because = f": {reason}" if reason else ""
            text = f"{by.get_username()} took {_names(node, node.dirty)} of {node.name} into use again{because}."
            _save(node, {})
            transitions.record(kind="device_reclaimed", text=text, node=node, actor=by)
    enqueue.dispatch_waiting()
    return node


def _names(node: Node, keys: Iterable[str]) -> str:
    """`GPU 0, GPU 1, port 20001`; the node has been seen with these keys."""
    wanted = set(keys)
    return ", ".join(each.name for each in machines.dirty(node) if _key(each) in wanted)


def _key(dirty: machines.Dirty) -> str:
    return str(dirty.device) if dirty.device is not None else f"{PORT}{dirty.port}"


def _keys(replica: Replica, left: Sequence[Leftover]) -> list[str]:
    """What is not used because of it: the devices, unless only the port was left; the port, if it was, or if there is
    nothing else that stands for the replica."""
    kinds = {each.kind for each in left}
    own = [str(index) for index in replica.devices] if kinds != {LeftoverKind.PORT} else []
    return own if own and LeftoverKind.PORT not in kinds else [*own, f"{PORT}{replica.port}"]


def _not_used(node: Node, keys: list[str]) -> str:
    verb = "is" if len(keys) == 1 else "are"
    name = _names(node, keys)
    return f"{name[:1].upper()}{name[1:]} of {node.name} {verb} not used until it is gone."


def _words(left: Sequence[Leftover]) -> list[str]:
    words = [each.words.replace("\0", "")[:WORDS_CHARS] for each in left]
    more = len(words) - WORDS_SHOWN
    return words if more <= 0 else [*words[:WORDS_SHOWN], f"{more} more"]


def _save(node: Node, dirty: dict[str, object]) -> None:
    node.dirty = dirty
    node.save(update_fields=["dirty"])
    transitions.announce_node(node)
