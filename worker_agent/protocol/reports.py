"""Reports: agent → control plane, one signed envelope per entry of the Redis stream `REPORTS_KEY`."""

import msgspec

from worker_agent.protocol.findings import Finding
from worker_agent.protocol.job.workload import MeasuredModel
from worker_agent.protocol.records import Leftover
from worker_agent.protocol.states import ReplicaStatus

REPORTS_KEY = "trainyard:reports"


def acks_key(node_id: str) -> str:
    """The Redis hash in which ingest acknowledges: field `<replica_id>:<attempt>:<stream>` → offset (bytes)."""
    return f"trainyard:acks:{node_id}"


def ack_field(replica_id: int, attempt: int, stream: str) -> str:
    """The field of `acks_key` for one stream of one replica's attempt."""
    return f"{replica_id}:{attempt}:{stream}"


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One device slot of a node. `kind` is "gpu" or "cpu"; `memory_bytes` 0 where unknown."""

    index: int
    kind: str
    name: str
    memory_bytes: int = 0


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """What a node has and runs. Versions are "" where the package is missing; `tpus` counts chips, None: not told.
    `job_fields` are the fields of a job that its agent knows, apart by spaces ("": not told, by an older one).
    Agents with the same `machine` share its ports, whatever their addresses ("": not told)."""

    hostname: str
    cores: int
    memory_bytes: int
    devices: list[Device]
    python: str
    tensorflow: str
    keras: str
    tf_keras: str
    agent: str
    platform: str
    tpus: int | None = None
    machine: str = ""
    job_fields: str = ""


class GpuSample(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU now: percent, bytes, degrees Celsius, watts."""

    index: int
    utilisation: float
    memory_bytes: int
    temperature: float
    power_w: float


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """A node now: CPU percent of all cores, memory in bytes, network bytes per second since the last sample."""

    at: float
    cpu_percent: float
    memory_used_bytes: int
    memory_total_bytes: int
    network_sent_bps: float
    network_received_bps: float
    gpus: list[GpuSample]


class RunningReplica(msgspec.Struct, frozen=True, kw_only=True):
    """A replica the agent holds, as told with every heartbeat: the control plane compares it with its rows."""

    replica_id: int
    attempt: int
    status: ReplicaStatus
    pid: int
    cpu_percent: float = 0.0
    memory_bytes: int = 0


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """The agent (re)started: its inventory as of now, and the address other nodes reach it at."""

    node_id: str
    address: str
    inventory: Inventory


class Goodbye(msgspec.Struct, frozen=True, kw_only=True, tag="goodbye"):
    """The agent has been told to end: it takes no launch any more. What it holds it reports until it is gone."""

    node_id: str


class ReplicaLeftovers(msgspec.Struct, frozen=True, kw_only=True):
    """What an ended replica could not give back is looked at again and again. None: it is all gone by now."""

    replica_id: int
    attempt: int
    leftovers: list[Leftover] = msgspec.field(name="left")


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True, tag="heartbeat"):
    """Once a second: the node's load, the replicas it holds, and what ended ones have left behind."""

    node_id: str
    sample: Sample
    replicas: list[RunningReplica]
    leftovers: list[ReplicaLeftovers] = msgspec.field(name="remains", default_factory=list)


class Ack(msgspec.Struct, frozen=True, kw_only=True, tag="ack"):
    """A command arrived and was journalled. `refused`: why not, from an agent of the version before."""

    node_id: str
    command_id: int
    refused: str = ""


class Records(msgspec.Struct, frozen=True, kw_only=True, tag="records"):
    """A slice [`start`, `end`) of one spool stream, in bytes; `records` are the encoded payloads in order.

    `offsets[i]` is the stream position just behind `records[i]`, so a receiver that holds a cursor inside the slice
    can drop exactly what it has.
    """

    node_id: str
    replica_id: int
    attempt: int
    stream: str
    start: int
    end: int
    offsets: list[int]
    records: list[bytes]


class Probed(msgspec.Struct, frozen=True, kw_only=True, tag="probed"):
    """What a `Probe` found. `taken` are the node's own doors that it could not open, `unreached` those of other nodes
    that did not answer, by label; `facts` is what the node that built the program learned of it, in words. `tried` says
    that the program was tried: built, or found wrong, to its end or to the time limit; `model` what was measured of
    it, where that was asked for."""

    node_id: str
    preflight_id: int
    findings: list[Finding]
    taken: list[str] = []
    unreached: dict[str, Finding] = {}
    facts: dict[str, str] = {}
    tried: bool = False
    model: MeasuredModel | None = None


Report = Hello | Goodbye | Heartbeat | Ack | Records | Probed
