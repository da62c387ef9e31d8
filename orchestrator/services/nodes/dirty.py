"""Devices and ports that an ended replica could not give back. They are not used again until the node's agent has seen
that all is gone, or an administrator takes them into use all the same. Each of these leaves an event.

Placement reads it (`services/nodes/cluster_snapshot.py`), machine pages and REST show it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from orchestrator import enqueue
from orchestrator.domain.words import storable
from orchestrator.models import Node, Replica
from orchestrator.models.machines import Dirty
from orchestrator.services import transitions
from worker_agent.protocol.codec import plain
from worker_agent.protocol.records import Leftover, LeftoverKind
from worker_agent.protocol.reports import ReplicaLeftovers
from worker_agent.protocol.states import Cause, DeviceKind

WORDS_SHOWN = 5
WORDS_CHARS = 200


def note(*, replica: Replica, left: Sequence[Leftover], cause: Cause, now: datetime) -> None:
    """A replica has ended of this cause, and something is left on its node; where its port was taken, that is not its
    own. To be called in the transaction that stores its end."""
    node = Node.objects.select_for_update().filter(pk=replica.node_id).first() if left else None
    if node is None:
        return
    found = _dirtied(node, replica, left, now)
    places = [(each.device, each.port) for each in found]
    save(node, [*(each for each in node.not_used if (each.device, each.port) not in places), *found])
    what = ", ".join(_words(left))
    foreign = cause is Cause.PORT_TAKEN and all(each.kind is LeftoverKind.PORT for each in left)
    said = "found its port in use" if foreign else "has ended, but left something behind"
    text = f"{replica.words} of j-{replica.job_id} {said}: {what}. {_not_used(node, found)}"
    transitions.record(kind="device_dirty", text=text, node=node, replica=replica)


def update(*, node: Node, leftovers: Sequence[ReplicaLeftovers]) -> None:
    """What the node's agent sees now of what was left there."""
    seen = {each.replica_id: each.leftovers for each in leftovers}
    if not any(each.replica_id in seen for each in node.not_used):
        return
    row = Node.objects.select_for_update().get(pk=node.pk)
    before = row.not_used
    gone = [each for each in before if seen.get(each.replica_id) == []]
    present = [
        replace(each, left=_words(seen[each.replica_id])) if each.replica_id in seen else each
        for each in before
        if each not in gone
    ]
    if present != before:
        save(row, present)
    if gone:
        what = ", ".join(dict.fromkeys(word for each in gone for word in each.left))
        text = f"What was left on {row.name} is released ({what}): {names_of(gone)} can be used again."
        transitions.record(kind="device_clean", text=text, node=row)
        enqueue.ask_to_dispatch()


def names_of(found: Iterable[Dirty]) -> str:
    """`GPU 0, GPU 1, port 20001`."""
    return ", ".join(each.name for each in found)


def save(node: Node, dirty: list[Dirty]) -> None:
    """Write what is dirty of a node, devices first."""
    node.dirty = plain(sorted(dirty, key=lambda each: (each.device is None, each.device or each.port or 0)))
    node.save(update_fields=["dirty"])
    transitions.announce_node(node)


def _dirtied(node: Node, replica: Replica, left: Sequence[Leftover], now: datetime) -> list[Dirty]:
    """What is not used because of it: the devices, unless only the port was left; the port, if it was, or if there is
    nothing else that stands for the replica."""
    kinds = {each.kind for each in left}
    own = replica.devices if kinds != {LeftoverKind.PORT} else []
    is_gpu = {device.index: device.kind == DeviceKind.GPU for device in node.devices}
    places: list[tuple[str, int | None, int | None]] = [
        (f"{'GPU' if is_gpu.get(index) else 'CPU slot'} {index}", index, None) for index in own
    ]
    if not own or LeftoverKind.PORT in kinds:
        places.append((f"port {replica.port}", None, replica.port))
    return [
        Dirty(
            name=name,
            device=device,
            port=port,
            left=_words(left),
            replica_id=replica.pk,
            job=replica.job_id,
            attempt=replica.attempt,
            replica=replica.words,
            since=now,
        )
        for name, device, port in places
    ]


def _not_used(node: Node, found: Sequence[Dirty]) -> str:
    verb, names = "is" if len(found) == 1 else "are", names_of(found)
    return f"{names[:1].upper()}{names[1:]} of {node.name} {verb} not used until it is released."


def _words(left: Sequence[Leftover]) -> list[str]:
    words = [storable(each.words)[:WORDS_CHARS] for each in left]
    more = len(words) - WORDS_SHOWN
    return words if more <= 0 else [*words[:WORDS_SHOWN], f"{more} more"]
