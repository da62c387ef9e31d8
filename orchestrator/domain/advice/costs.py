"""The formulas: what a step of each layout consists of, as terms for the constants of `calibration.py`.

`docs/choosing.md` explains them. Sources: ring all-reduce, Patarasuk and Yuan 2009; links with latency and bandwidth,
Hockney 1994; the queue at parameter servers, Reiser and Lavenberg 1980; pipeline, Huang et al. 2019; tensor parallel,
Shoeybi et al. 2019.
"""

from dataclasses import dataclass
from statistics import fmean, harmonic_mean

from orchestrator.domain.advice.calibration import Constants, Term, step_ms
from orchestrator.domain.advice.candidates import Candidate
from orchestrator.domain.advice.cluster import LINKS, NCCL_ALPHA_MS, Cluster, Link
from orchestrator.domain.advice.workload import Basis, Compute, Workload, compute, max_basis
from worker_agent.protocol.job.choices import Communication
from worker_agent.protocol.job.gang_shape import keras_of
from worker_agent.protocol.job.sparse_rows import travels_as_rows
from worker_agent.protocol.job.strategy_row import Split
from worker_agent.protocol.records import StepPart
from worker_agent.protocol.states import DeviceKind, Strategy

# Under central storage of GPUs: between main memory and a GPU, and what main memory gives to the optimizer.
HOST_LINK = LINKS["pcie4"]
HOST_BYTES_PER_S = 10e9


@dataclass(frozen=True)
class Situation:
    """A layout with what was looked up for it. `passes` is one compute time for each computing process, in seat order:
    of one part of one replica's batch."""

    workload: Workload
    cluster: Cluster
    candidate: Candidate
    passes: tuple[Compute, ...]

    @property
    def basis(self) -> Basis:
        """The least sure of what its compute times rest on."""
        return max_basis(*(each.basis for each in self.passes))

    @property
    def ranks_ms(self) -> list[float]:
        """What each process computes for one step: all parts of its batch."""
        return [each.gradients_ms * self.candidate.batch.parts for each in self.passes]


def situation(workload: Workload, cluster: Cluster, candidate: Candidate) -> Situation:
    """Looks up each process's compute time. ValueError where nothing says it."""
    spec, here = candidate.spec, [cluster.place_of(seat) for seat in candidate.computing]
    keras = keras_of(spec)
    looked_up: dict[tuple[float, float, float], Compute] = {}
    passes = []
    for seat, place in zip(candidate.computing, here, strict=True):
        machine = cluster.machine(seat.node_id)
        # A fair share of the machine's cores for each process, divided over its logical devices.
        cores = machine.cores / here.count(place) / spec.devices_per_worker
        key = (cores, machine.speed, machine.flops_per_s)
        if key not in looked_up:
            looked_up[key] = compute(
                workload,
                candidate.batch.per_part,
                keras=keras,
                device=candidate.device,
                cores=cores,
                speed=machine.speed,
                flops_per_s=machine.flops_per_s,
            )
        passes.append(looked_up[key])
    return Situation(workload, cluster, candidate, tuple(passes))


def terms(found: Situation, constants: Constants) -> list[Term]:
    """A step of the layout. Only queueing reads the constants."""
    split = found.candidate.split
    if split is Split.ONE_WORKER:
        step = _served(found, constants)
    elif split is Split.GROUPS:
        step = _tensor(found)
    elif split is Split.STAGES:
        step = _pipe(found)
    else:
        step = _mirrored(found)
    return [*step, Term(StepPart.HOST, "", found.workload.host_ms)]


def examples_read(found: Situation) -> int:
    """How many examples one process prepares for a step: all that are computed, unless the data are divided before."""
    batch = found.candidate.batch
    reads_all = found.candidate.split is Split.DEVICES and not found.workload.reads_apart
    return batch.global_batch_size if reads_all else batch.per_worker


def input_ms(found: Situation) -> float:
    """What one process needs to prepare them. It happens beside the step, so only the rest waits."""
    return found.workload.input_ms * examples_read(found)


def travels(workload: Workload, candidate: Candidate) -> tuple[float, float]:
    """The bytes that each replica sends dense and as rows, for the gradients of a synchronous step."""
    dense, rows = workload.dense_bytes, 0.0
    replicas, examples = candidate.batch.replicas_in_sync, candidate.batch.per_replica
    for table in workload.tables:
        if travels_as_rows(
            table_bytes=table.size_bytes,
            table_rows=table.rows,
            rows=table.touched * examples,
            replicas=replicas,
            on_gpus=candidate.device is not DeviceKind.CPU,
        ):
            rows += table.touched_bytes(examples)
        else:
            dense += table.size_bytes
    return dense, rows


def link_of(found: Situation) -> Link:
    """What carries the gradients of a layout: the slowest link of its ring."""
    candidate, cluster = found.candidate, found.cluster
    seats, within = candidate.computing, _device_link(found)
    if len(seats) == 1:
        return within
    if candidate.split is Split.ONE_WORKER:
        pairs = ((one, other) for one in seats for other in candidate.servers)
        return cluster.by_grpc(cluster.link_between(*pair) for pair in pairs)
    if candidate.device is DeviceKind.CPU or candidate.spec.communication is Communication.RING:
        return cluster.grpc_ring(seats)
    between = cluster.ring(seats)
    return Link(max(within.alpha_ms, NCCL_ALPHA_MS), min(between.bytes_per_s, within.bytes_per_s), between.source)


def _device_link(found: Situation) -> Link:
    if found.candidate.device is DeviceKind.CPU:
        return LINKS["memory"]
    machines = [found.cluster.machine(seat.node_id) for seat in found.candidate.computing]
    return min((machine.devices for machine in machines), key=lambda link: link.bytes_per_s)


def _computed(found: Situation) -> list[Term]:
    """What the replicas compute: their mean, and how much longer the slowest takes."""
    mean, slowest = fmean(found.ranks_ms), max(found.ranks_ms)
    return [Term(StepPart.COMPUTE, "compute", mean), Term(StepPart.WAIT, "compute", slowest - mean)]


def _mirrored(found: Situation) -> list[Term]:
    """One device, mirrored, central storage, multi-worker mirrored: copies that add up their gradients."""
    candidate, workload = found.candidate, found.workload
    n, link = candidate.batch.replicas_in_sync, link_of(found)
    apply = max(each.apply_ms for each in found.passes)
    step = _computed(found)
    if n == 1:
        return [*step, Term(StepPart.APPLY, "compute", apply)]
    dense, rows = travels(workload, candidate)
    moved = [Term(StepPart.COMMUNICATION, "variables", workload.variables)]
    if candidate.spec.strategy is Strategy.CENTRAL_STORAGE:
        return [*step, *moved, *_central(found, dense + rows, apply)]
    is_gang = len(candidate.computing) > 1
    step.append(Term(StepPart.APPLY, "compute" if is_gang else "apply", apply))
    if candidate.device is DeviceKind.CPU and not is_gang:
        dense, rows = dense + rows, 0.0  # logical devices copy rows as they copy tensors
    return [
        *step,
        *moved,
        Term(StepPart.COMMUNICATION, "fixed", 1.0),
        Term(StepPart.COMMUNICATION, "", 2 * (n - 1) * link.alpha_ms),
        Term(StepPart.COMMUNICATION, "bytes", ring(n) * link.ms(dense)),
        Term(StepPart.COMMUNICATION, "rows_fixed", float(rows > 0)),
        Term(StepPart.COMMUNICATION, "rows", (n - 1) * link.ms(rows)),
    ]


def _central(found: Situation, gradients: float, apply: float) -> list[Term]:
    """Variables in main memory: the devices read them there and bring their gradients; one apply for all."""
    n, link, workload = found.candidate.batch.replicas_in_sync, link_of(found), found.workload
    moved = ring(n) * link.ms(gradients)
    if found.candidate.device is DeviceKind.GPU:
        moved = n * HOST_LINK.ms(workload.parameter_bytes + gradients)
        apply = 1e3 * workload.parameter_bytes * (2 + 2 * workload.slots) / HOST_BYTES_PER_S
    return [Term(StepPart.COMMUNICATION, "bytes", moved), Term(StepPart.APPLY, "apply", apply)]


def ring(n: int) -> float:
    """How often each byte passes a link of a ring all-reduce over n."""
    return 2 * (n - 1) / n


def _served(found: Situation, constants: Constants) -> list[Term]:
    """The mean time between two updates of workers that each pull, compute and push.

    A worker's cycle is its own work, then service by the parameter servers, where it may queue. With Q others before
    it on average, N workers make N updates in (own + service × (1 + Q)).
    """
    workload, candidate, cluster = found.workload, found.candidate, found.cluster
    workers, servers, link = len(candidate.computing), len(candidate.servers), link_of(found)
    rows = sum(table.touched_bytes(candidate.spec.global_batch_size) for table in workload.tables)
    # Processes of one machine share its network, on the side that has fewer machines.
    doors = min(len({cluster.place_of(seat) for seat in side}) for side in (candidate.computing, candidate.servers))
    there_and_back = 2 * link.ms(workload.dense_bytes + rows)
    apply = fmean(each.apply_ms for each in found.passes)
    own = [
        Term(StepPart.COMPUTE, "compute", harmonic_mean(found.ranks_ms)),
        Term(StepPart.COMMUNICATION, "fixed", 1.0),
        Term(StepPart.COMMUNICATION, "", 2 * link.alpha_ms),
        Term(StepPart.COMMUNICATION, "variables", workload.variables),
        Term(StepPart.COMMUNICATION, "bytes", there_and_back * (1 - 1 / doors)),
    ]
    service = [
        Term(StepPart.COMMUNICATION, "bytes", there_and_back / doors),
        Term(StepPart.APPLY, "compute", apply / servers),
    ]
    queue = queued(workers, step_ms(own, constants), step_ms(service, constants))
    waits = [Term(StepPart.WAIT, term.constant, term.ms * queue) for term in service]
    return [Term(term.part, term.constant, term.ms / workers) for term in [*own, *service, *waits]]


def queued(customers: int, own_ms: float, service_ms: float) -> float:
    """How many others a customer finds at a server on average: exact mean value analysis of a closed queue."""
    queue = found = 0.0
    for number in range(1, customers + 1):
        found = queue
        response = service_ms * (1 + found)
        queue = number * response / (own_ms + response) if response else 0.0
    return found


def _tensor(found: Situation) -> list[Term]:
    """Layers split over t devices, in groups that add up their gradients."""
    workload, candidate = found.workload, found.candidate
    t, groups = candidate.spec.model_parallel, candidate.batch.replicas_in_sync
    share = divided(workload, t)
    within = _device_link(found) if t <= candidate.spec.devices_per_worker else link_of(found)
    activations = workload.activation_bytes * candidate.batch.per_replica
    # Each split layer adds up its outputs on the way forward and its inputs' gradients on the way back.
    layers = max(1, workload.variables // 2)
    between = link_of(found)
    # The rings of a group's members pass through the network of their machine together.
    together = min(t, candidate.spec.devices_per_worker) if len(candidate.computing) > 1 else 1
    gradients = workload.gradient_bytes * share * together
    return [
        *(Term(term.part, term.constant, term.ms * share) for term in _computed(found)),
        Term(StepPart.APPLY, "compute", max(each.apply_ms for each in found.passes) * share),
        Term(StepPart.COMMUNICATION, "fixed", 1.0),
        Term(StepPart.COMMUNICATION, "", 2 * layers * 2 * (t - 1) * within.alpha_ms),
        Term(StepPart.COMMUNICATION, "bytes", 2 * ring(t) * within.ms(activations)),
        Term(StepPart.COMMUNICATION, "", 2 * (groups - 1) * between.alpha_ms),
        Term(StepPart.COMMUNICATION, "bytes", ring(groups) * between.ms(gradients)),
    ]


def divided(workload: Workload, t: int) -> float:
    """What each of t devices has of a model whose layers are split as far as they can be."""
    return 1 - workload.divisible * (1 - 1 / t)


def _pipe(found: Situation) -> list[Term]:
    """Stages that micro-batches walk through: m of them and p stages take m + p - 1 turns of the slowest stage."""
    workload, candidate = found.workload, found.candidate
    stages, parts = candidate.devices, candidate.batch.parts
    passes = [each.gradients_ms / stages for each in found.passes]
    mean, slowest = fmean(passes), max(passes)
    link = link_of(found)
    send = 2 * link.ms(workload.boundary_bytes * candidate.batch.per_part)
    turns = parts + stages - 1
    return [
        Term(StepPart.COMPUTE, "compute", parts * mean),
        Term(StepPart.WAIT, "compute", turns * slowest - parts * mean),
        Term(StepPart.APPLY, "compute", max(each.apply_ms for each in found.passes) / stages),
        Term(StepPart.COMMUNICATION, "fixed", 1.0),
        Term(StepPart.COMMUNICATION, "", turns * 2 * link.alpha_ms),
        Term(StepPart.COMMUNICATION, "bytes", turns * send),
    ]
