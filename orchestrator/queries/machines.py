"""Reads about clusters and nodes, and who holds which device of a node. Pages, REST and sockets call these."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, fields

from django.db.models import Count, F, Prefetch, Q, QuerySet, Window
from django.db.models.functions import RowNumber

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


@dataclass(frozen=True)
class Fleet:
    """Nodes in numbers: how many stand at each state, their devices by kind and by the state of their slots, and the
    `usable` ones by kind: free, and on a node that takes jobs."""

    nodes: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    devices: Counter[str] = field(default_factory=Counter)
    usable: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: "Fleet") -> "Fleet":
        return Fleet(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))


def clusters(user: Person) -> QuerySet[Cluster]:
    """Every cluster by name, with its nodes at hand to be counted."""
    states = Prefetch("nodes", Node.objects.only("cluster", "state"))
    return shown_to(user, Cluster.objects.prefetch_related(states).order_by("name"))


def cluster_names(user: Person) -> list[str]:
    """Every cluster's name, in order."""
    return list(shown_to(user, Cluster.objects.order_by("name")).values_list("name", flat=True))


def cluster(user: Person, name: str) -> Cluster:
    """One cluster by name; raises `NotFound`."""
    try:
        return clusters(user).get(name=name)
    except Cluster.DoesNotExist as error:
        raise NotFound(f"There is no cluster {name}.") from error


def losses(user: Person) -> QuerySet[Cluster, tuple[int, str, int]]:
    """Of every cluster, by name: its key, its name, and how many of its nodes are lost."""
    lost = Count("nodes__state", filter=Q(nodes__state=NodeState.LOST.value))  # all of it stands in an index
    return shown_to(user, Cluster.objects.order_by("name")).annotate(lost=lost).values_list("pk", "name", "lost")


def nodes(user: Person, cluster: Cluster | None = None) -> QuerySet[Node]:
    """The nodes of a cluster, or all, by cluster and name."""
    found = _visible_nodes(user)
    return found if cluster is None else found.filter(cluster=cluster)


def first_nodes(user: Person, *, limit: int) -> QuerySet[Node]:
    """The first nodes of every cluster."""
    place = Window(RowNumber(), partition_by=[F("cluster")], order_by="name")
    return _visible_nodes(user).defer("sample", "holding").annotate(place=place).filter(place__lte=limit)


def fleets(user: Person, cluster: Cluster | None = None) -> dict[str, Fleet]:
    """All nodes in numbers, by the name of their cluster."""
    held: dict[str | None, set[int]] = defaultdict(set)
    for node_id, indexes in Replica.objects.filter(held=True).order_by().values_list("node_id", "devices"):
        held[node_id].update(indexes)
    found: dict[str, Fleet] = defaultdict(Fleet)
    columns = ("pk", "cluster__name", "state", "dirty", "inventory__devices")
    for node_id, name, state, dirty, devices in nodes(user, cluster).values_list(*columns):
        fleet, is_dirty = found[name], {each["device"] for each in dirty if each["left"]}
        fleet.nodes[state] += 1
        for device in devices or ():
            index = device["index"]
            fleet.kinds[device["kind"]] += 1
            slot = _slot_state(state, held=index in held[node_id], dirty=index in is_dirty)
            fleet.devices[slot] += 1
            if slot == "free" and state == NodeState.READY:
                fleet.usable[device["kind"]] += 1
    return found


def find_nodes(user: Person, text: str, *, limit: int) -> list[Node]:
    """The first nodes with `text` in their name: name and state alone."""
    # PostgreSQL takes no NUL.
    found = _visible_nodes(user).filter(name__icontains=text.replace("\0", " ")).only("name", "state", "cluster__name")
    return list(found[:limit])


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
    left = {(node.pk, each.device): each.left for node in wanted for each in node.not_used}
    return {node.pk: [_slot(node, device, holders, left) for device in node.devices] for node in wanted}


def node_replicas(node: Node, *, limit: int = 50) -> list[Replica]:
    """What runs on a node (holding its port), then what ran there last, with the jobs."""
    return list(node.replicas.select_related("job", "job__owner").order_by("-held", "-pk")[:limit])


def node_events(node: Node, *, limit: int = 100) -> list[Event]:
    """The latest events of a node, newest first."""
    return list(node.events.select_related("actor", "job").order_by("-pk")[:limit])


def _visible_nodes(user: Person) -> QuerySet[Node]:
    return shown_to(user, Node.objects.select_related("cluster").order_by("cluster__name", "name"))


def _slot(
    node: Node,
    device: Device,
    holders: dict[tuple[str | None, int], Replica],
    left: dict[tuple[str, int | None], list[str]],
) -> Slot:
    holder, names = holders.get((node.pk, device.index)), left.get((node.pk, device.index), [])
    return Slot(
        index=device.index,
        kind=device.kind,
        name=device.name,
        state=_slot_state(node.state, held=holder is not None, dirty=bool(names)),
        holder=holder,
        left=", ".join(names),
    )


def _slot_state(node_state: str, *, held: bool, dirty: bool) -> str:
    return "lost" if node_state == NodeState.LOST else "held" if held else "dirty" if dirty else "free"
