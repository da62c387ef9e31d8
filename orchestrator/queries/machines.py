"""Reads about clusters and nodes, and who holds which device of a node. Pages, REST and sockets call these."""

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Prefetch, QuerySet

from orchestrator.models import Cluster, Event, Node, Replica
from orchestrator.queries.errors import NotFound
from orchestrator.queries.jobs import Person, shown_to
from worker_agent.protocol.reports import Device
from worker_agent.protocol.states import NodeState


@dataclass(frozen=True)
class Slot:
    """One device of a node. `state` is "free", "held", "dirty" (an ended replica did not give it back) or "lost" (its
    node is silent); `holder` has its job at hand, `left` says what holds a dirty one."""

    index: int
    kind: str
    name: str
    state: str
    holder: Replica | None
    left: str = ""


def clusters(user: Person) -> QuerySet[Cluster]:
    """Every cluster by name, with its nodes at hand to be counted."""
    states = Prefetch("nodes", Node.objects.only("cluster", "state"))
    return shown_to(user, Cluster.objects.prefetch_related(states).order_by("name"))


def cluster(user: Person, name: str) -> Cluster:
    """One cluster by name; raises `NotFound`."""
    try:
        return clusters(user).get(name=name)
    except Cluster.DoesNotExist as error:
        raise NotFound(f"There is no cluster {name}.") from error


def nodes(user: Person, cluster: Cluster | None = None) -> list[Node]:
    """The nodes of a cluster, or all, by cluster and name."""
    found = _visible_nodes(user)
    return list(found if cluster is None else found.filter(cluster=cluster))


def node(user: Person, node_id: str) -> Node:
    """One node; raises `NotFound`."""
    try:
        return _visible_nodes(user).get(pk=node_id)
    except Node.DoesNotExist as error:
        raise NotFound(f"There is no node {node_id}.") from error


def slots(nodes: Iterable[Node]) -> dict[str, list[Slot]]:
    """The device map: for each node, its devices in order and the replica that holds each."""
    wanted = list(nodes)
    holders: dict[tuple[str | None, int], Replica] = {}
    for replica in Replica.objects.filter(held=True, node__in=wanted).select_related("job").order_by("pk"):
        for index in replica.devices:
            holders[replica.node_id, index] = replica
    return {node.pk: [_slot(node, device, holders) for device in node.devices] for node in wanted}


def node_replicas(node: Node, *, limit: int = 50) -> list[Replica]:
    """What runs on a node (holding its port), then what ran there last, with the jobs."""
    return list(node.replicas.select_related("job", "job__owner").order_by("-held", "-pk")[:limit])


def node_events(node: Node, *, limit: int = 100) -> list[Event]:
    """The latest events of a node, newest first."""
    return list(node.events.select_related("actor", "job").order_by("-pk")[:limit])


def _visible_nodes(user: Person) -> QuerySet[Node]:
    return shown_to(user, Node.objects.select_related("cluster").order_by("cluster__name", "name"))


def _slot(node: Node, device: Device, holders: dict[tuple[str | None, int], Replica]) -> Slot:
    holder = holders.get((node.pk, device.index))
    left = next((each.left for each in node.not_used if each.device == device.index), [])
    state = "lost" if node.state == NodeState.LOST else "held" if holder else "dirty" if left else "free"
    return Slot(
        index=device.index,
        kind=device.kind,
        name=device.name,
        state=state,
        holder=holder,
        left=", ".join(left),
    )
