"""How much memory a layout needs, on each device and on each machine, and what does not fit.

A replica holds its variables, the optimizer's slots, the gradients, a packed copy of them where they are summed with
others, and the activations of the examples that it computes at once. Under tensor parallel and pipeline a device holds
its part of the variables. Parameter servers hold variables and slots, a worker copies what it computes with.
"""

from collections import Counter
from dataclasses import dataclass

from orchestrator.domain.advice.candidates import Candidate, with_parts
from orchestrator.domain.advice.cluster import Cluster
from orchestrator.domain.advice.costs import divided, travels
from orchestrator.domain.advice.sentences import Code, Figure, Remark
from orchestrator.domain.advice.workload import Workload
from worker_agent.protocol.job.strategy_row import Split
from worker_agent.protocol.states import DeviceKind, Role, Strategy

# TensorFlow and Python in one process (measured: 600 to 760 MiB), and CUDA's own on a GPU (an estimate).
PROCESS_BYTES = 0.76e9
GPU_BYTES = 0.8e9
# From this share of a memory on, a caution.
NEAR = 0.85


@dataclass(frozen=True)
class Memory:
    """What a layout needs: the fullest device, by device, and what speaks against it.

    `device_bytes` is of a GPU, or of one slot's share of its process. `share` is the fullest memory's, 0 if no memory
    is known."""

    device_bytes: float
    share: float
    refusal: Remark | None = None


def fitting(workload: Workload, cluster: Cluster, candidate: Candidate) -> tuple[Candidate, Memory]:
    """The layout with the fewest parts of a step (accumulation) that fit, and its memory; as it is if none fits."""
    first = memory = needed(workload, cluster, candidate)
    parts = candidate.batch.parts
    while memory.refusal and (parts := 2 * parts) <= candidate.batch.per_replica:
        divided = with_parts(candidate, parts)
        if divided is None:
            break
        memory = needed(workload, cluster, divided)
        if not memory.refusal:
            return divided, memory
    return candidate, first


def needed(workload: Workload, cluster: Cluster, candidate: Candidate) -> Memory:
    """The memory of one layout as it stands."""
    on_device = _device_bytes(workload, candidate)
    on_gpus = candidate.device is DeviceKind.GPU
    shares: list[tuple[float, Remark]] = []
    for seat in candidate.computing if on_gpus else []:
        has = cluster.machine(seat.node_id).device_memory_bytes
        if has:
            figures: dict[str, Figure] = {
                "needs_bytes": on_device + GPU_BYTES,
                "has_bytes": has,
                "node": seat.node_name,
            }
            shares.append(((on_device + GPU_BYTES) / has, Remark(Code.DEVICE_MEMORY, figures)))
    hosts: Counter[str] = Counter()
    for seat in candidate.seats:
        hosts[cluster.place_of(seat)] += round(PROCESS_BYTES + _host_bytes(workload, candidate, seat.role, on_device))
    for host, needs in sorted(hosts.items()):
        seat = next(each for each in candidate.seats if cluster.place_of(each) == host)
        has = cluster.machine(seat.node_id).memory_bytes
        if has:
            shares.append(
                (
                    needs / has,
                    Remark(Code.MACHINE_MEMORY, {"needs_bytes": needs, "has_bytes": has, "node": seat.node_name}),
                )
            )
    share, remark = max(shares, key=lambda each: each[0], default=(0.0, None))
    own = GPU_BYTES if on_gpus else PROCESS_BYTES / candidate.spec.devices_per_worker
    return Memory(on_device + own, share, remark if share > 1 else None)


def _device_bytes(workload: Workload, candidate: Candidate) -> float:
    """What one device holds of the model and its work."""
    spec, batch = candidate.spec, candidate.batch
    model, gradients = workload.parameter_bytes, workload.dense_bytes + _touched(workload, batch.per_part)
    activations = workload.activation_bytes * batch.per_part
    kept = model * (1 + workload.slots)
    match candidate.split:
        case Split.GROUPS:
            return (kept + 2 * gradients) * divided(workload, spec.model_parallel) + activations
        case Split.STAGES:
            # GPipe keeps what every micro-batch needs for its way back.
            return (kept + gradients + workload.activation_bytes * spec.global_batch_size) / candidate.devices
        case Split.ONE_WORKER:
            tables = sum(table.size_bytes for table in workload.tables)
            return model - tables + _touched(workload, batch.per_part) + gradients + activations
    if spec.strategy is Strategy.CENTRAL_STORAGE:
        return 2 * workload.largest_bytes + gradients + activations
    packed = sum(travels(workload, candidate)) if batch.replicas_in_sync > 1 else 0.0
    added_up = gradients if batch.parts > 1 else 0.0
    return kept + gradients + packed + added_up + activations


def _host_bytes(workload: Workload, candidate: Candidate, role: Role, on_device: float) -> float:
    """What a process holds in main memory."""
    spec = candidate.spec
    kept = workload.parameter_bytes * (1 + workload.slots)
    if role is Role.PS:
        share = kept / spec.ps
        whole = 0.0 if spec.min_shard_bytes else workload.largest_bytes * (1 + workload.slots)
        return max(share, whole)
    if candidate.split is Split.ONE_WORKER and role is Role.CHIEF:
        return 0.0
    central = kept if spec.strategy is Strategy.CENTRAL_STORAGE else 0.0
    return central + (on_device * spec.devices_per_worker if candidate.device is DeviceKind.CPU else 0.0)


def _touched(workload: Workload, examples: float) -> float:
    """The rows that so many examples touch."""
    return sum(table.touched_bytes(examples) for table in workload.tables)
