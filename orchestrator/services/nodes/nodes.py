"""What administrators do with clusters and nodes. Called by the machine pages, the admin and REST. Every act leaves an
event with its actor.
"""

from datetime import UTC, datetime

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from orchestrator import enqueue
from orchestrator.domain.words import storable
from orchestrator.models import Cluster, Node, Replica, User
from orchestrator.queries.errors import NotFound
from orchestrator.services import transitions
from orchestrator.services.errors import Conflict, FieldError, Forbidden, Invalid
from orchestrator.services.nodes import dirty
from orchestrator.services.nodes.joining import name_problem
from orchestrator.services.transitions import StaleTransition, announce_node, move_node
from worker_agent.protocol.states import NodeState


def create_cluster(*, by: User, **fields: object) -> Cluster:
    """Register a cluster; fields are the columns of `Cluster`."""
    _require_administrator(by)
    cluster = Cluster()
    _write_cluster(cluster, fields)
    transitions.record(kind="cluster_created", text=f"Cluster {cluster.name} was registered.", actor=by)
    return cluster


def update_cluster(*, cluster: Cluster, by: User, **fields: object) -> Cluster:
    """Change a cluster; the event says what was what before. Gangs that run keep what they were given."""
    _require_administrator(by)
    with transaction.atomic():
        locked = Cluster.objects.select_for_update().get(pk=cluster.pk)
        before = {name: getattr(locked, name) for name in fields}
        name = locked.name
        _write_cluster(locked, fields)
        if locked.name != name and locked.jobs.exists():
            raise Invalid([FieldError("name", "Jobs refer to this cluster by its name: it can no longer be renamed.")])
        changes = [_change(each, was, now) for each, was in before.items() if (now := getattr(locked, each)) != was]
        if changes:
            text = f"Cluster {name} was changed: {'; '.join(changes)}."
            transitions.record(kind="cluster_changed", text=text, actor=by)
            enqueue.ask_to_dispatch()
    return locked


def delete_cluster(*, cluster: Cluster, by: User) -> None:
    """Forget a cluster that has neither nodes nor jobs, and with it the join commands that nobody used."""
    _require_administrator(by)
    with transaction.atomic():
        locked = Cluster.objects.select_for_update().get(pk=cluster.pk)
        if locked.nodes.exists() or locked.jobs.exists():
            raise Conflict(f"Cluster {locked.name} has nodes or jobs and cannot be deleted.")
        locked.delete()
        transitions.record(kind="cluster_deleted", text=f"Cluster {locked.name} was deleted.", actor=by)


def cordon(*, node_id: str, by: User, reason: str = "") -> Node:
    """Place nothing new on the node; what runs goes on."""
    return _move(node_id, NodeState.CORDONED, by, reason, "cordoned")


def drain(*, node_id: str, by: User, reason: str = "") -> Node:
    """Place nothing new, have what runs save and leave, or finish, then leave the node cordoned: the sweep does that
    (`draining.py`)."""
    return _move(node_id, NodeState.DRAINING, by, reason, "set to drain")


def uncordon(*, node_id: str, by: User, reason: str = "") -> Node:
    """Use the node again."""
    node = _move(node_id, NodeState.READY, by, reason, "taken into use again")
    enqueue.ask_to_dispatch()
    return node


def reclaim(*, node_id: str, by: User, reason: str = "") -> Node:
    """Use the node's dirty devices and ports again, whatever was left there."""
    _require_administrator(by)
    with transaction.atomic():
        node = _node(node_id, locked=True)
        if node.dirty:
            names = dirty.names_of(node.not_used)
            text = f"{by.get_username()} took {names} of {node.name} into use again{_because(reason)}."
            dirty.save(node, [])
            transitions.record(kind="device_reclaimed", text=text, node=node, actor=by)
    enqueue.ask_to_dispatch()
    return node


def rename(*, node_id: str, name: str, by: User) -> Node:
    """Give the node another name. Its key, queue and history stay."""
    _require_administrator(by)
    name = name.strip()
    if problem := name_problem(name):
        raise Invalid([FieldError("name", problem)])
    node = _node(node_id)
    if Node.objects.filter(cluster=node.cluster, name=name).exclude(pk=node.pk).exists():
        raise Conflict(f"Cluster {node.cluster.name} has a node {name} already.")
    before, node.name = node.name, name
    node.save(update_fields=["name"])
    transitions.record(kind="node_renamed", text=f"{before} was renamed {name}.", node=node, actor=by)
    announce_node(node)
    return node


def remove(*, node_id: str, by: User, reason: str = "") -> None:
    """Forget a node. Its key is worth nothing from then on. Nothing may run there, as far as anyone knows."""
    _require_administrator(by)
    with transaction.atomic():
        node = _node(node_id)
        live = Replica.objects.live().filter(node=node)
        if live.exists():
            jobs = sorted({f"j-{job_id}" for job_id in live.values_list("job_id", flat=True)})
            raise Conflict(f"{node.name} still runs {', '.join(jobs)}: stop these jobs or drain the node first.")
        text = f"{node.name} was removed from cluster {node.cluster.name}{_because(reason)}."
        transitions.record(kind="node_removed", text=text, node=node, actor=by)
        announce_node(node)
        node.delete()


def _move(node_id: str, to: NodeState, by: User, reason: str, word: str) -> Node:
    _require_administrator(by)
    reason = storable(reason).strip()
    node = _node(node_id)
    if node.state == to:
        return node
    if node.state == NodeState.LOST:
        raise Conflict(f"{node.name} is lost: its agent does not report. Start the agent, or remove the node.")
    if node.state == NodeState.LEAVING:
        raise Conflict(f"{node.name} is leaving: its agent was told to end. Start the agent, or remove the node.")
    text = f"{node.name} was {word} by {by.get_username()}{_because(reason)}."
    try:
        with transaction.atomic():
            move_node(node=node, to=to, now=datetime.now(UTC), reason=reason, actor=by, text=text)
    except StaleTransition as error:
        raise Conflict(f"{node.name} has changed meanwhile: reload the page.") from error
    return node


def _node(node_id: str, *, locked: bool = False) -> Node:
    rows = Node.objects.select_related("cluster").filter(pk=node_id)
    node = (rows.select_for_update(of=("self",)) if locked else rows).first()
    if node is None:
        raise NotFound(f"There is no node {node_id}.")
    return node


def _change(column: str, was: object, now: object) -> str:
    """One setting as the history tells it. Of variables the names alone: their values may be secrets."""
    words = column.replace("_", " ")
    if not isinstance(was, dict) or not isinstance(now, dict):
        return f"{words} was {was or 'empty'}, is {now or 'empty'}"
    parts = {
        "added": sorted(now.keys() - was.keys()),
        "removed": sorted(was.keys() - now.keys()),
        "changed": sorted(each for each in was.keys() & now.keys() if was[each] != now[each]),
    }
    return f"{words}: " + ", ".join(f"{', '.join(names)} {verb}" for verb, names in parts.items() if names)


def _write_cluster(cluster: Cluster, fields: dict[str, object]) -> None:
    for name, value in fields.items():
        setattr(cluster, name, value.strip() if isinstance(value, str) else value)
    try:
        cluster.full_clean()
    except ValidationError as error:
        # Of several the last is ours, in plainer words than Django's.
        said = {"" if field == "__all__" else field: words[-1] for field, words in error.message_dict.items()}
        raise Invalid([FieldError(field, words) for field, words in said.items()]) from error
    try:
        with transaction.atomic():
            cluster.save()
    except IntegrityError as error:
        raise Invalid([FieldError("name", "There is a cluster of that name already.")]) from error


def _require_administrator(by: User) -> None:
    if not by.may_administer:
        raise Forbidden("Only administrators may change machines.")


def _because(reason: str) -> str:
    return f": {said}" if (said := storable(reason).strip()) else ""
