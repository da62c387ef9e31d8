"""The machines that an advice is for: placement's view of them, and what they can do.

A link has a latency and a bandwidth (Hockney 1994): a message of n bytes takes alpha + n / bandwidth. Where nothing was
measured, `LINKS` has usual figures, each with its source.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from orchestrator.domain.advice.calibration import Calibration
from orchestrator.domain.advice.workload import checked
from orchestrator.domain.placement.planning import ClusterView, PlannedReplica


@dataclass(frozen=True)
class Link:
    """`alpha_ms` for a message, and `bytes_per_s`. `source` says where the figures come from."""

    alpha_ms: float
    bytes_per_s: float
    source: str = "measured"

    def __post_init__(self) -> None:
        checked("a link", {"alpha_ms": self.alpha_ms})
        checked("a link", {"bytes_per_s": self.bytes_per_s}, above=True)

    def ms(self, size_bytes: float) -> float:
        """The bytes alone."""
        return 1e3 * size_bytes / self.bytes_per_s


_LAB = "measured: all-reduce of two TensorFlow processes on one machine, least squares over 4 kB to 64 MB"
_ETHERNET = "the line rate less 6 % for Ethernet, IP and TCP headers at 1,500 bytes; latency of a gRPC call"
LINKS: Mapping[str, Link] = {
    "loopback": Link(0.33, 588e6, _LAB),
    "memory": Link(0.0, 5.6e9, "measured: MirroredStrategy on two logical CPUs, 0.18 ms/MB"),
    "ethernet_1g": Link(0.33, 0.117e9, _ETHERNET),
    "ethernet_10g": Link(0.33, 1.17e9, _ETHERNET),
    "ethernet_25g": Link(0.33, 2.9e9, _ETHERNET),
    "ethernet_100g": Link(0.33, 11.7e9, _ETHERNET),
    "pcie4": Link(0.02, 14e9, "half of pcie5"),
    "pcie5": Link(0.02, 28e9, "bus bandwidth of NCCL's all-reduce on 8 GPUs without NVLink, NVIDIA/nccl issue 1639"),
    "nvlink_bridge": Link(0.02, 115e9, "the same on 2 GPUs with a bridge, NVIDIA/nccl issue 1161"),
    "nvlink3": Link(0.02, 200e9, "the same on 8 GPUs A100, NVIDIA/nccl-tests issue 149"),
    "nvlink4": Link(0.02, 370e9, "the same on 8 GPUs H100 as a ring, NVIDIA/nccl-tests issue 212"),
}
# NCCL's latency of a hop between two machines, an estimate.
NCCL_ALPHA_MS = 0.05
# A preemptible machine is taken away after 24 hours at the latest at one large provider, and often earlier.
LOSSES_PER_DAY = 1.0


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What one node can do. Nodes at one address are one machine: `cores` and `memory_bytes` are the machine's.

    `device_memory_bytes` is of one GPU; CPU slots share the machine's memory. A memory of 0 is unknown and not checked.
    `speed` is relative to the node that was probed, `flops_per_s` the peak of a GPU, or of one core. `devices` links
    the devices of the node.
    """

    cores: int = 1
    memory_bytes: float = 0.0
    device_memory_bytes: float = 0.0
    speed: float = 1.0
    flops_per_s: float = 0.0
    devices: Link = LINKS["pcie4"]
    preemptible: bool = False

    def __post_init__(self) -> None:
        checked("a machine", {"cores": self.cores, "speed": self.speed}, above=True)
        memory = {"memory_bytes": self.memory_bytes, "device_memory_bytes": self.device_memory_bytes}
        checked("a machine", {**memory, "flops_per_s": self.flops_per_s})


_UNKNOWN = Machine()


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Nodes, what each can do (by node id), how they are linked, and what was learnt from trainings on them.

    `network` links any two machines; `links` (two node ids) holds those that were measured by themselves. Nodes on one
    machine reach each other by `loopback`.
    """

    view: ClusterView
    machines: Mapping[str, Machine]
    network: Link = LINKS["ethernet_10g"]
    links: Mapping[frozenset[str], Link] = field(default_factory=dict)
    loopback: Link = LINKS["loopback"]
    calibration: Calibration = field(default_factory=Calibration)

    @cached_property
    def idle(self) -> ClusterView:
        """The same as if no job ran, its nodes by name."""
        nodes = sorted(self.view.nodes, key=lambda node: node.name)
        return replace(self.view, nodes=tuple(replace(node, held=frozenset()) for node in nodes))

    def machine(self, node_id: str) -> Machine:
        """What a node can do; a node that nothing is known of is like the probed one."""
        return self.machines.get(node_id, _UNKNOWN)

    def place_of(self, seat: PlannedReplica) -> str:
        """The machine on which a process runs."""
        return self.view.machine_at(seat.host)

    def link_between(self, one: PlannedReplica, other: PlannedReplica) -> Link:
        """What carries their messages."""
        known = self.links.get(frozenset({one.node_id, other.node_id}))
        return known or (self.loopback if self.place_of(one) == self.place_of(other) else self.network)

    def ring(self, seats: Sequence[PlannedReplica]) -> Link:
        """The slowest link of a ring over several machines, in NCCL's order: each machine is entered once."""
        places = {self.place_of(seat): seat for seat in seats}
        return _slowest([self.link_between(*pair) for pair in _around(list(places.values()))] or [self.loopback])

    def grpc_ring(self, seats: Sequence[PlannedReplica]) -> Link:
        """The same by gRPC, in the order of the processes: all hops that leave a machine share its network."""
        hops = [pair for pair in _around(seats) if self.place_of(pair[0]) != self.place_of(pair[1])]
        leaving = Counter(self.place_of(one) for one, _other in hops)
        return self.by_grpc([_shared(self.link_between(*pair), leaving[self.place_of(pair[0])]) for pair in hops])

    def by_grpc(self, links: Iterable[Link]) -> Link:
        """The slowest of them, as TensorFlow's gRPC uses it: no faster than within one machine."""
        return _slowest([*links, self.loopback])


def _around(ring: Sequence[PlannedReplica]) -> list[tuple[PlannedReplica, PlannedReplica]]:
    return list(zip(ring, [*ring[1:], ring[0]], strict=True)) if len(ring) > 1 else []


def _shared(link: Link, by: int) -> Link:
    return replace(link, bytes_per_s=link.bytes_per_s / by)


def _slowest(links: Iterable[Link]) -> Link:
    return min(links, key=lambda link: (link.bytes_per_s, -link.alpha_ms))
