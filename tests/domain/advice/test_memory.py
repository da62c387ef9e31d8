"""What a layout needs, and what does not fit; and what else one machine shares: its cores."""

from dataclasses import replace

import msgspec
import pytest

from orchestrator.domain.advice.candidates import Staleness, candidates
from orchestrator.domain.advice.cluster import Cluster, Machine
from orchestrator.domain.advice.costs import situation
from orchestrator.domain.advice.memory import GPU_BYTES, PROCESS_BYTES, needed
from orchestrator.domain.advice.sentences import Code
from orchestrator.domain.advice.workload import Probe, Table
from tests.domain.advice.cases import gpu_model, gpus, line, wishes
from tests.domain.gang.gangs import cluster as view_of
from tests.domain.gang.gangs import node
from worker_agent.protocol.states import DeviceKind, Keras, Strategy

# 1 GB of variables with Adam; an example's activations are 1 MB.
MODEL = gpu_model(parameter_bytes=1e9, dense_bytes=1e9, activation_bytes=1e6, largest_bytes=4e8)


def of(strategy, cluster, **sizes):
    layouts = candidates(cluster, wishes(64, staleness=Staleness.ALLOWED))[0]
    return next(
        each
        for each in layouts
        if each.spec.strategy is strategy and all(getattr(each.spec, name) == value for name, value in sizes.items())
    )


@pytest.mark.parametrize(
    ("strategy", "sizes", "own"),
    [
        (Strategy.ONE_DEVICE, {}, 4e9 + 64e6),
        (Strategy.MIRRORED, {"devices_per_worker": 4}, 5e9 + 16e6),
        (Strategy.MULTI_WORKER_MIRRORED, {"workers": 2, "devices_per_worker": 4}, 5e9 + 8e6),
        (Strategy.CENTRAL_STORAGE, {"devices_per_worker": 4}, 0.8e9 + 1e9 + 16e6),
        (Strategy.PARAMETER_SERVER, {"workers": 2, "devices_per_worker": 4}, 2e9 + 16e6),
        (Strategy.TENSOR_PARALLEL, {"workers": 2, "devices_per_worker": 4, "model_parallel": 4}, 5e9 / 4 + 32e6),
        (Strategy.PIPELINE, {"workers": 2, "devices_per_worker": 4}, (4e9 + 64e6) / 8),
    ],
)
def test_what_a_device_holds(strategy, sizes, own):
    cluster = gpus(1.0, 1.0, each=4)
    assert needed(MODEL, cluster, of(strategy, cluster, **sizes)).device_bytes == pytest.approx(own + GPU_BYTES)


def test_only_the_divisible_part_of_a_model_is_divided():
    cluster = gpus(1.0, each=4)
    layout = of(Strategy.TENSOR_PARALLEL, cluster, devices_per_worker=4, model_parallel=4)
    half = replace(MODEL, divisible=0.5)
    assert needed(half, cluster, layout).device_bytes == pytest.approx(5e9 * (0.5 + 0.5 / 4) + 64e6 + GPU_BYTES)


def cpus(memory: float, cores: int = 4) -> Cluster:
    """Two nodes of two slots on one machine."""
    nodes = view_of(node("n1", 2, address="10.0.0.1"), node("n2", 2, address="10.0.0.1"))
    return Cluster(view=nodes, machines={name: Machine(cores=cores, memory_bytes=memory) for name in ("n1", "n2")})


def test_all_processes_of_a_machine_share_its_memory():
    two = of(Strategy.MULTI_WORKER_MIRRORED, cpus(1), workers=2)
    both = 2 * (5e9 + 32e6 + PROCESS_BYTES)
    assert needed(MODEL, cpus(both * 1.01), two).refusal is None
    refusal = needed(MODEL, cpus(both * 0.99), two).refusal
    assert refusal is not None
    assert refusal.code is Code.MACHINE_MEMORY
    assert refusal.figures["needs_bytes"] == pytest.approx(both)


@pytest.mark.parametrize(("min_shard_bytes", "served"), [(0, 3 * 6e8), (1 << 20, 3e9 / 2)])
def test_a_server_holds_its_share_or_at_least_the_largest_variable(min_shard_bytes, served):
    """Of two servers; variables that are not split stay whole on one of them."""
    model = replace(MODEL, largest_bytes=6e8)
    cluster = gpus(1.0, 1.0)
    job = of(Strategy.PARAMETER_SERVER, cluster, workers=2, ps=2)
    layout = replace(job, spec=msgspec.structs.replace(job.spec, min_shard_bytes=min_shard_bytes))
    machines = {name: Machine(memory_bytes=1e9, device_memory_bytes=80e9) for name in cluster.machines}
    refusal = needed(model, replace(cluster, machines=machines), layout).refusal
    assert refusal is not None
    # The machine has a server, a worker and perhaps the chief.
    processes = sum(seat.node_id == "n01" for seat in layout.seats)
    assert refusal.figures["needs_bytes"] == pytest.approx(served + processes * PROCESS_BYTES)


def test_workers_of_servers_hold_only_the_touched_rows_of_a_table():
    table = Table(rows=10_000_000, row_bytes=64, touched=10)
    model = replace(MODEL, parameter_bytes=1e9 + table.size_bytes, tables=(table,))
    cluster = gpus(1.0, 1.0)
    layout = of(Strategy.PARAMETER_SERVER, cluster, workers=2)
    rows = 64 * 10 * 64
    assert needed(model, cluster, layout).device_bytes == pytest.approx(2e9 + 64e6 + 2 * rows + GPU_BYTES)


@pytest.mark.parametrize(
    ("strategy", "sizes", "cores"),
    [
        (Strategy.ONE_DEVICE, {}, 4),
        (Strategy.MIRRORED, {"devices_per_worker": 2}, 2),
        (Strategy.MULTI_WORKER_MIRRORED, {"workers": 2}, 2),
        (Strategy.MULTI_WORKER_MIRRORED, {"workers": 4}, 1),
    ],
)
def test_all_processes_of_a_machine_share_its_cores(strategy, sizes, cores):
    """A probe for each number of cores says which was looked up."""
    probes = tuple(Probe(Keras.KERAS3, DeviceKind.CPU, line(1.0 / each, 0), cores=each) for each in (1, 2, 4))
    found = situation(replace(MODEL, probes=probes), cpus(0), of(strategy, cpus(0), **sizes))
    assert {each.gradients_ms for each in found.passes} == {1.0 / cores}
