"""A cluster as it stands now, as the value that placement works on. Read by dispatch and by the preview."""

from datetime import datetime, timedelta

from django.db.models import Count
from django.utils import timezone

from orchestrator.domain.planning import ClusterView, NodeView, Software
from orchestrator.domain.restarts import BLAMELESS, Blame
from orchestrator.models import Attempt, Cluster, Node, Preflight, Replica
from worker_agent.protocol.states import DeviceKind, NodeState

# A node on which so many attempts failed within so long is used only where the others have no room.
FAILURES_AVOIDED = 3
FAILURES_WITHIN = timedelta(hours=1)


def cluster_view(
    cluster: Cluster, *, ports_avoided: frozenset[tuple[str, int]] = frozenset(), now: datetime | None = None
) -> ClusterView:
    """Nodes with their held devices, and the ports that are held (wherever in the installation), are being tried by a
    preflight, or are to be avoided."""
    now = now or timezone.now()
    held: dict[str, set[int]] = {}
    ports = set(ports_avoided)
    for doors in Preflight.objects.filter(ports_until__gt=now).values_list("doors", flat=True):
        ports |= {(str(host), int(port)) for host, port in doors}
    for node_id, host, port, devices in Replica.objects.filter(held=True).values_list(
        "node_id", "host", "port", "devices"
    ):
        ports.add((host, port))
        held.setdefault(node_id, set()).update(devices)
    failing = _failing_nodes(cluster, now)
    return ClusterView(
        nodes=tuple(
            _node_view(node, frozenset(held.get(node.pk, ())), avoided=node.pk in failing)
            for node in cluster.nodes.order_by("name")
        ),
        port_first=cluster.port_first,
        port_last=cluster.port_last,
        ports_taken=frozenset(ports),
    )


def _failing_nodes(cluster: Cluster, now: datetime) -> set[str]:
    """Nodes on which attempts failed lately, again and again, and not of their programs."""
    failed = Attempt.objects.filter(
        failed_on__cluster=cluster, blame=Blame.MACHINES.value, ended_at__gt=now - FAILURES_WITHIN
    ).exclude(cause__in=BLAMELESS)
    often = failed.order_by().values("failed_on").annotate(times=Count("pk")).filter(times__gte=FAILURES_AVOIDED)
    return set(often.values_list("failed_on", flat=True))


def _node_view(node: Node, held: frozenset[int], *, avoided: bool) -> NodeView:
    return NodeView(
        node_id=node.pk,
        name=node.name,
        address=node.address,
        state=NodeState(node.state),
        devices=tuple((int(str(device["index"])), DeviceKind(str(device["kind"]))) for device in node.devices),
        held=held,
        avoided=avoided,
        tpus=node.inventory.get("tpus"),
        software=Software(**{name: str(node.inventory.get(name, "")) for name in Software.__dataclass_fields__}),
    )
