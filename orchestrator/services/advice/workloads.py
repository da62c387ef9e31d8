"""What a node is asked about a model, and its answer as the workload that an advice reads."""

from collections.abc import Iterable, Sequence
from statistics import median_low

from orchestrator.domain.advice.candidates import Candidate
from orchestrator.domain.advice.cluster import Cluster
from orchestrator.domain.advice.workload import Probe, Table, Workload
from worker_agent.protocol.job.workload import MeasuredModel, Question, Stretch
from worker_agent.protocol.states import DeviceKind

# Three numbers of cores and three batches on each are enough for a line, and fit the time.
AT_MOST = 3
# Nothing that a node tells of a model is larger; its program may have made it up.
LARGEST = 1e15
TABLES_MAX, TIMED_MAX = 1000, 20


def question(cluster: Cluster, layouts: Iterable[Candidate]) -> Question:
    """The batch of one pass on the cores that one replica would have, of the layouts on CPUs: the fewest, the most and
    one between. A program is tried out on the CPU, so nothing is asked for GPUs."""
    wanted: dict[int, set[int]] = {}
    for layout in layouts:
        if layout.device is not DeviceKind.CPU:
            continue
        places = [cluster.place_of(seat) for seat in layout.computing]
        for seat, place in zip(layout.computing, places, strict=True):
            own = cluster.machine(seat.node_id).cores / places.count(place) / layout.spec.devices_per_worker
            wanted.setdefault(max(1, int(own)), set()).add(layout.batch.per_part)
    chosen = reversed(_ends_and_middle(sorted(wanted)))
    return Question(stretches=[Stretch(cores=cores, batches=_batches(wanted[cores])) for cores in chosen])


def _batches(sizes: set[int]) -> list[int]:
    """Two at least, so that there is a line."""
    least = min(sizes)
    return _ends_and_middle(sorted(sizes if len(sizes) > 1 else {max(1, least // 2), least}))


def _ends_and_middle(numbers: Sequence[int]) -> list[int]:
    few = numbers if len(numbers) <= AT_MOST else {numbers[0], median_low(numbers), numbers[-1]}
    return sorted(few)


def workload_of(model: MeasuredModel) -> Workload:
    """As a node has measured it; ValueError where its numbers cannot be."""
    if len(model.tables) > TABLES_MAX or len(model.timed) > TIMED_MAX:
        raise ValueError(f"the model has more than {TABLES_MAX} tables, or was timed more often than was asked")
    workload = Workload(
        parameters=model.parameters,
        parameter_bytes=model.parameter_bytes,
        variables=model.variables,
        dense_bytes=model.dense_bytes,
        tables=tuple(Table(each.rows, each.row_bytes, each.touched) for each in model.tables),
        slots=model.slots,
        activation_bytes=model.activation_bytes,
        boundary_bytes=model.boundary_bytes,
        largest_bytes=model.largest_bytes,
        flops=model.flops,
        probes=tuple(
            Probe(model.keras, DeviceKind.CPU, dict(each.step_ms), each.apply_ms, each.cores) for each in model.timed
        ),
        reads_apart=model.reads_apart,
        examples=model.examples,
    )
    told = [value for value in vars(workload).values() if isinstance(value, int | float)]
    told += [number for each in workload.tables for number in (each.rows, each.row_bytes, each.touched)]
    told += [number for each in workload.probes for number in (each.cores, *each.step_ms, *each.step_ms.values())]
    if max(told) > LARGEST:
        raise ValueError(f"a number that was told of the model is larger than {LARGEST:g}")
    return workload
