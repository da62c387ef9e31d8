"""A cluster as an advice sees it: its nodes now, what their inventories say, and usual figures for the rest."""

from dataclasses import replace
from datetime import datetime

from orchestrator.domain.advice.cluster import LINKS, Cluster, Machine
from orchestrator.models import Cluster as ClusterRow
from orchestrator.models import Node
from orchestrator.services.nodes.cluster_snapshot import cluster_view
from worker_agent.protocol.codec import typed
from worker_agent.protocol.reports import Inventory
from worker_agent.protocol.states import DeviceKind

# Peaks where nothing was measured: single precision of one core with vector instructions, and of a middling GPU.
CORE_FLOPS, GPU_FLOPS = 50e9, 15e12
_ETHERNET = LINKS["ethernet_10g"]
NETWORK = replace(_ETHERNET, source=f"not measured, taken as 10 Gbit/s Ethernet: {_ETHERNET.source}")


def machines_of(cluster: ClusterRow, *, now: datetime) -> Cluster:
    """The cluster without a calibration: each figure that rests on usual constants says so."""
    nodes = cluster.nodes.exclude(inventory={})
    return Cluster(
        view=cluster_view(cluster, now=now), machines={node.pk: _machine(node) for node in nodes}, network=NETWORK
    )


def _machine(node: Node) -> Machine:
    has = typed(node.inventory, Inventory)
    gpus = [device for device in has.devices if device.kind == DeviceKind.GPU]
    return Machine(
        cores=max(1, has.cores),
        memory_bytes=has.memory_bytes,
        device_memory_bytes=min((device.memory_bytes for device in gpus), default=0),
        flops_per_s=GPU_FLOPS if gpus else CORE_FLOPS,
    )
