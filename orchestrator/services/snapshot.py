"""A cluster as it stands now, as the value that placement works on. Read by dispatch and by the preview."""

from django.utils import timezone

from orchestrator.domain.planning import ClusterView, NodeView, Software
from orchestrator.models import Cluster, Node, Preflight, Replica
from worker_agent.protocol.states import DeviceKind, NodeState


def cluster_view(cluster: Cluster, *, ports_avoided: frozenset[tuple[str, int]] = frozenset()) -> ClusterView:
    """Nodes with their held devices, and the ports that are held (wherever in the installation), are being tried by a
    preflight, or are to be avoided."""
    held: dict[str, set[int]] = {}
    ports = set(ports_avoided)
    for doors in Preflight.objects.filter(ports_until__gt=timezone.now()).values_list("doors", flat=True):
        ports |= {(str(host), int(port)) for host, port in doors}
    for node_id, host, port, devices in Replica.objects.filter(held=True).values_list(
        "node_id", "host", "port", "devices"
    ):
        ports.add((host, port))
        held.setdefault(node_id, set()).update(devices)
    return ClusterView(
        nodes=tuple(_node_view(node, frozenset(held.get(node.pk, ()))) for node in cluster.nodes.order_by("name")),
        port_first=cluster.port_first,
        port_last=cluster.port_last,
        ports_taken=frozenset(ports),
    )


def _node_view(node: Node, held: frozenset[int]) -> NodeView:
    return NodeView(
        node_id=node.pk,
        name=node.name,
        address=node.address,
        state=NodeState(node.state),
        devices=tuple((int(str(device["index"])), DeviceKind(str(device["kind"]))) for device in node.devices),
        held=held,
        software=Software(**{name: str(node.inventory.get(name, "")) for name in Software.__dataclass_fields__}),
    )
