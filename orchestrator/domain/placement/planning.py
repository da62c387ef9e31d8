"""Gang placement: all processes of a job on nodes, devices and ports at once, or a sentence that says what is missing.

Pure: `services/jobs/dispatch.py` loads the cluster as it stands and applies the answer under guard; the new-job preview
shows the same answer without applying it. Rules:
a worker is never split over nodes; workers are spread over as many nodes as there are, evenly; a strategy of one
process takes the node it fills best, so that room for gangs stays; coordinators and parameter servers hold a port but
no device; an evaluator sits beside the leader, whose checkpoints it reads, and computes on the CPU; all workers of a
gang compute on the same kind of device; a port is taken once per machine; a node to be avoided is taken last.
A hand-written TF_CONFIG fixes the addresses: then each process takes the node that has its address.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.domain.placement.tf_config import addresses_in, cluster_spec, extras_in, tf_config
from orchestrator.domain.words import counted
from worker_agent.protocol.job.choices import Validator
from worker_agent.protocol.job.gang_shape import computing_roles, deviceless_roles, is_leader
from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.protocol.job.strategies import STRATEGIES
from worker_agent.protocol.job.strategy_row import Split
from worker_agent.protocol.states import DeviceKind, NodeState, Role


@dataclass(frozen=True)
class Software:
    """Versions of what a node runs; "" where it has none, or has not told. `job_fields` as in its `Inventory`."""

    tensorflow: str = ""
    keras: str = ""
    tf_keras: str = ""
    agent: str = ""
    job_fields: str = ""


@dataclass(frozen=True)
class NodeView:
    """A node as placement sees it: its device indexes by kind, which of them a running job holds, what it runs.

    `tpus` counts the TPU chips of its own, None where its agent has not told. `avoided`: attempts failed there lately,
    so that it is taken only where the others have no room.
    `dirty` are devices that an ended replica could not give back.
    """

    node_id: str
    name: str
    address: str
    state: NodeState
    devices: tuple[tuple[int, DeviceKind], ...]
    held: frozenset[int] = frozenset()
    software: Software = Software()
    avoided: bool = False
    dirty: frozenset[int] = frozenset()
    tpus: int | None = None

    def free(self, kind: DeviceKind | None = None) -> list[int]:
        """Indexes of devices that can be taken now (none unless the node is ready)."""
        if self.state is not NodeState.READY:
            return []
        return [index for index, own in self.devices if index not in self.held | self.dirty and kind in (None, own)]

    def count(self, kind: DeviceKind) -> int:
        """How many devices of the kind the node has, held or not."""
        return sum(own is kind for _index, own in self.devices)


@dataclass(frozen=True)
class ClusterView:
    """The nodes of a cluster, its port range (both ends in it), and the ports that are taken: of a machine, as
    `machines` names it by address, else of an address."""

    nodes: tuple[NodeView, ...]
    port_first: int
    port_last: int
    ports_taken: frozenset[tuple[str, int]] = frozenset()
    machines: Mapping[str, str] = field(default_factory=dict)

    def machine_at(self, address: str) -> str:
        """Whose ports are those of this address."""
        return self.machines.get(address, address)

    def with_gang(self, gang: Sequence["PlannedReplica"]) -> "ClusterView":
        """The same once these processes hold their places."""
        held: dict[str, set[int]] = {}
        for each in gang:
            held.setdefault(each.node_id, set()).update(each.devices)
        nodes = tuple(replace(node, held=node.held.union(held.get(node.node_id, ()))) for node in self.nodes)
        ports = {(self.machine_at(each.host), each.port) for each in gang}
        return replace(self, nodes=nodes, ports_taken=self.ports_taken | ports)


@dataclass(frozen=True)
class PlannedReplica:
    """One process of the gang and everything that is decided for it: columns of its row."""

    role: Role
    index: int
    node_id: str
    node_name: str
    host: str
    port: int
    devices: tuple[int, ...]
    device_kind: DeviceKind
    tf_config: dict[str, object] | None

    @property
    def label(self) -> str:
        """`worker:0`."""
        return f"{self.role.value}:{self.index}"


@dataclass(frozen=True)
class Placed:
    """The whole gang has a place."""

    replicas: tuple[PlannedReplica, ...]


@dataclass(frozen=True)
class NotNow:
    """The gang fits the cluster, but not at this moment: what it waits for."""

    message: str


@dataclass(frozen=True)
class Never:
    """The cluster is too small whatever ends: the field to change and how."""

    field: str
    message: str


LOCAL_TPU = "local"
# All that placement reads of a job: those that agree in it have room, or have none, at the same time.
SHAPE = (
    "cluster",
    "kind",
    "strategy",
    "workers",
    "devices_per_worker",
    "ps",
    "chief",
    "validation",
    "tpu",
    "tf_config",
)
# TensorFlow's collectives on CPU see one device per process.
ONE_CPU_DEVICE = "On CPUs TensorFlow uses one device per worker. Use more workers, each with 1, or nodes with GPUs"


def place(spec: JobSpec, cluster: ClusterView, *, port_offset: int = 0) -> Placed | NotNow | Never:
    """Place the whole gang of `spec`, or say why not.

    `port_offset` turns the port range, so that jobs in quick succession and repeated launches use other ports.
    """
    never = _never(spec, cluster)
    if never:
        return never
    for kind in _usable_kinds(spec):
        seats = _seat_as_written(spec, cluster, kind) if spec.tf_config else _seat(spec, cluster.nodes, kind)
        if isinstance(seats, Never):
            return seats
        if seats is not None:
            return _with_ports(spec, seats, cluster, port_offset)
    return NotNow(_shortage(spec, cluster.nodes))


def shape_of(spec: JobSpec) -> str:
    """What jobs have in common that `place` treats alike, but for the ports that it turns to."""
    return repr([getattr(spec, name) for name in SHAPE])


def nodes_of(replicas: tuple[PlannedReplica, ...], cluster: ClusterView) -> list[NodeView]:
    """The nodes that a placement uses."""
    used = {replica.node_id for replica in replicas}
    return [node for node in cluster.nodes if node.node_id in used]


def _never(spec: JobSpec, cluster: ClusterView) -> Never | None:
    if not cluster.nodes:
        return Never("cluster", f"cluster {spec.cluster} has no nodes yet: add a node first")
    if all(lacks_tpu(spec, node) for node in cluster.nodes):
        return Never(
            "tpu",
            f"no node of cluster {spec.cluster} has a TPU of its own: give the name or address of one, or choose a "
            "strategy for the devices that its nodes have",
        )
    need = spec.devices_per_worker
    kinds = _usable_kinds(spec)
    largest = max(node.count(kind) for node in cluster.nodes for kind in kinds)
    if largest < need and DeviceKind.CPU not in kinds:
        return Never("devices_per_worker", ONE_CPU_DEVICE)
    if largest < need:
        return Never(
            "devices_per_worker",
            f"a worker with {counted(need, 'device')} fits no node: the largest has {largest}. Use at most {largest}",
        )
    rooms = {kind: {node.name: node.count(kind) // need for node in cluster.nodes} for kind in kinds}
    room = max(rooms.values(), key=lambda by_node: sum(by_node.values()))
    most = sum(room.values())
    if most < spec.workers:
        held = ", ".join(f"{name} {number}" for name, number in room.items())
        return Never(
            "workers",
            f"more workers than the nodes can hold: {spec.workers} with {counted(need, 'device')} each asked for, "
            f"{most} fit ({held}). Use at most {most}",
        )
    return None


def lacks_tpu(spec: JobSpec, node: NodeView) -> bool:
    """Whether the job is for a node's own TPU, and this node is known to have none."""
    row = STRATEGIES[spec.strategy]
    return row.split is Split.CORES and spec.tpu in ("", LOCAL_TPU) and node.tpus == 0


def _usable_kinds(spec: JobSpec) -> tuple[DeviceKind, ...]:
    """GPUs before CPU slots; no CPU slots where TensorFlow would use only the first of a worker's; a TPU's host needs
    no GPU."""
    row = STRATEGIES[spec.strategy]
    if row.one_cpu_device and spec.devices_per_worker > 1:
        return (DeviceKind.GPU,)
    if row.split is Split.CORES:
        return (DeviceKind.CPU, DeviceKind.GPU)
    return (DeviceKind.GPU, DeviceKind.CPU)


def _seat(spec: JobSpec, nodes: tuple[NodeView, ...], kind: DeviceKind) -> list[PlannedReplica] | None:
    """Every process on its node, without port and TF_CONFIG; None where there is no room now."""
    need = spec.devices_per_worker
    free = {node.node_id: node.free(kind) for node in nodes}
    seated: Counter[str] = Counter()
    seats = []

    def preference(node: NodeView) -> tuple[bool, int, int, str]:
        room = len(free[node.node_id])
        return node.avoided, seated[node.node_id], room if spec.workers == 1 else -room, node.name

    for role, index in computing_roles(spec):
        able = [node for node in nodes if len(free[node.node_id]) >= need and not lacks_tpu(spec, node)]
        if not able:
            return None
        best = min(able, key=preference)
        taken, free[best.node_id] = free[best.node_id][:need], free[best.node_id][need:]
        seated[best.node_id] += 1
        seats.append(_seated(role, index, best, taken, kind))
    return seats + _companions(spec, nodes, seats)


def _seated(
    role: Role, index: int, node: NodeView, devices: Sequence[int], kind: DeviceKind, *, port: int = 0
) -> PlannedReplica:
    """A process on its node; `port` 0 means that any free one will do."""
    return PlannedReplica(
        role=role,
        index=index,
        node_id=node.node_id,
        node_name=node.name,
        host=node.address,
        port=port,
        devices=tuple(devices),
        device_kind=kind if devices else DeviceKind.CPU,
        tf_config=None,
    )


def _companions(spec: JobSpec, nodes: tuple[NodeView, ...], workers: list[PlannedReplica]) -> list[PlannedReplica]:
    """Those without a device: spread over the ready nodes, away from workers where there is room; an evaluator beside
    the leader."""
    ready = [node for node in nodes if node.state is NodeState.READY]
    load = Counter(seat.node_id for seat in workers)
    companions: Counter[str] = Counter()
    seats: list[PlannedReplica] = []
    for role, index in deviceless_roles(spec):
        if role is Role.EVALUATOR:
            seats.append(_evaluator([*seats, *workers]))
            continue
        best = min(ready, key=lambda node: (node.avoided, companions[node.node_id], load[node.node_id], node.name))
        companions[best.node_id] += 1
        seats.append(_seated(role, index, best, (), DeviceKind.CPU))
    return seats


def _evaluator(seats: list[PlannedReplica]) -> PlannedReplica:
    """Beside the leader."""
    has_chief = any(seat.role is Role.CHIEF for seat in seats)
    leader = next(seat for seat in seats if is_leader(seat.role, seat.index, has_chief=has_chief))
    return replace(leader, role=Role.EVALUATOR, index=0, port=0, devices=(), device_kind=DeviceKind.CPU)


def _seat_as_written(spec: JobSpec, cluster: ClusterView, kind: DeviceKind) -> list[PlannedReplica] | Never | None:
    """Each process on a node of the address that a hand-written TF_CONFIG gives it."""
    free = {node.node_id: node.free(kind) for node in cluster.nodes}
    computing = set(computing_roles(spec))
    seats: list[PlannedReplica] = []
    for role, index, host, port in addresses_in(spec.tf_config):
        need = spec.devices_per_worker if (role, index) in computing else 0
        here = [node for node in cluster.nodes if node.address == host]
        if not here:
            return Never("tf_config", f"{host} (of {role.value} {index}) is not the address of a node of the cluster")
        if need and max(node.count(own) for node in here for own in DeviceKind) < need:
            return Never("tf_config", f"no node at {host} has {counted(need, 'device')} for {role.value} {index}")
        able = [node for node in here if node.state is NodeState.READY and len(free[node.node_id]) >= need]
        if not able:
            return None
        best = max(able, key=lambda node: len(free[node.node_id]))
        taken, free[best.node_id] = free[best.node_id][:need], free[best.node_id][need:]
        seats.append(_seated(role, index, best, taken, kind, port=port))
    if spec.validation == Validator.EVALUATOR:
        seats.append(_evaluator(seats))
    return seats


def _with_ports(
    spec: JobSpec, seats: list[PlannedReplica], cluster: ClusterView, port_offset: int
) -> Placed | NotNow | Never:
    _, most = Counter(cluster.machine_at(seat.host) for seat in seats).most_common(1)[0]
    width = cluster.port_last - cluster.port_first + 1
    if most > width:
        return Never(
            "cluster",
            f"{most} processes of this job would share one machine, and cluster {spec.cluster} has {width} ports "
            f"({cluster.port_first}-{cluster.port_last}). Widen its port range, or ask for fewer processes",
        )
    taken = set(cluster.ports_taken)
    placed = []
    for seat in seats:
        machine = cluster.machine_at(seat.host)
        if seat.port and (machine, seat.port) in taken:
            return NotNow(f"port {seat.port} of {seat.host}, which the TF_CONFIG names, is held by another job")
        turned = (cluster.port_first + (port_offset + step) % width for step in range(width))
        port = seat.port or next((each for each in turned if (machine, each) not in taken), None)
        if port is None:
            return NotNow(
                f"no port is free on {seat.node_name} ({seat.host}): "
                f"all of {cluster.port_first}-{cluster.port_last} are held by running jobs"
            )
        taken.add((machine, port))
        placed.append(replace(seat, port=port))
    if STRATEGIES[spec.strategy].is_gang:
        extras = extras_in(spec.tf_config)
        whole = cluster_spec((each.role, each.index, f"{each.host}:{each.port}") for each in placed)
        placed = [replace(each, tf_config=extras | tf_config(whole, each.role, each.index)) for each in placed]
    return Placed(tuple(placed))


def _shortage(spec: JobSpec, nodes: tuple[NodeView, ...]) -> str:
    need = f"needs {counted(spec.workers, 'worker')} with {counted(spec.devices_per_worker, 'device')} each"
    if spec.workers == 1:
        need = f"needs {counted(spec.devices_per_worker, 'free device')} on one node"
    parts: list[str] = []
    for node in nodes:
        why = f"{len(node.dirty)} dirty" if node.dirty else ""
        note = f" ({node.state.value})" if node.state is not NodeState.READY else f" ({why})" if why else ""
        parts.append(f"{len(node.free())}{'' if parts else ' free'} on {node.name}{note}")
    return f"{need}; {', '.join(parts)}"
