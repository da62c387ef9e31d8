"""A cluster as it stands now, as the value that placement works on. Read by dispatch and by the preview."""

from datetime import datetime

from django.utils import timezone

from orchestrator.domain.placement.planning import ClusterView, NodeView, Software
from orchestrator.models import Cluster, Node, Preflight, Replica
from orchestrator.services.nodes import failing_nodes
from worker_agent.protocol.states import DeviceKind, NodeState


def cluster_view(
    cluster: Cluster, *, ports_avoided: frozenset[tuple[str, int]] = frozenset(), now: datetime | None = None
) -> ClusterView:
    """Nodes with their held and dirty devices, and the ports that are held (wherever in the installation), are dirty,
    are being tried by a preflight, or are to be avoided. TensorFlow listens on all addresses of a machine, so a port
    is taken on each of them."""
    now = now or timezone.now()
    machines = dict(Node.objects.filter(inventory__machine__gt="").values_list("address", "inventory__machine"))
    held: dict[str, set[int]] = {}
    ports = set(ports_avoided)
    for doors in Preflight.objects.filter(ended_at=None, answer_by__gt=now).values_list("doors", flat=True):
        ports |= {(str(host), int(port)) for host, port in doors}
    for node_id, host, port, devices in Replica.objects.filter(held=True).values_list(
        "node_id", "host", "port", "devices"
    ):
        ports.add((host, port))
        held.setdefault(node_id, set()).update(devices)
    avoided = failing_nodes.to_avoid(cluster, now=now)
    nodes = list(cluster.nodes.order_by("name"))
    for node in nodes:
        ports |= {(node.address, port) for port in node.dirty_ports}
    return ClusterView(
        nodes=tuple(_node_view(node, frozenset(held.get(node.pk, ())), avoided=node.pk in avoided) for node in nodes),
        port_first=cluster.port_first,
        port_last=cluster.port_last,
        ports_taken=frozenset((machines.get(host, host), port) for host, port in ports),
        machines=machines,
    )


def _node_view(node: Node, held: frozenset[int], *, avoided: bool) -> NodeView:
    return NodeView(
        node_id=node.pk,
        name=node.name,
        address=node.address,
        state=NodeState(node.state),
        devices=tuple((device.index, DeviceKind(device.kind)) for device in node.devices),
        held=held,
        dirty=node.dirty_devices,
        avoided=avoided,
        tpus=node.inventory.get("tpus"),
        software=Software(**{name: str(node.inventory.get(name, "")) for name in Software.__dataclass_fields__}),
    )
