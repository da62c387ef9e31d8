"""Plain models and clusters for the tests of the advice."""

from collections.abc import Sequence
from typing import Any

from orchestrator.domain.advice.advice import Advice, advise
from orchestrator.domain.advice.candidates import Wishes
from orchestrator.domain.advice.cluster import LINKS, Cluster, Link, Machine
from orchestrator.domain.advice.workload import Probe, Workload
from tests.domain.gang.gangs import cluster as view_of
from tests.domain.gang.gangs import node, spec
from worker_agent.protocol.states import DeviceKind, Keras, Strategy

BATCH = 256
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def line(fixed_ms: float, example_ms: float, sizes: Sequence[int] = SIZES) -> dict[int, float]:
    """A step by batch."""
    return {size: fixed_ms + example_ms * size for size in sizes}


def gpu_model(**fields: Any) -> Workload:
    """25 M parameters, 0.5 ms an example on a GPU: computing rules where the links are good."""
    probes = tuple(Probe(keras, DeviceKind.GPU, line(4, 0.5), apply_ms=1.0) for keras in Keras)
    own: dict[str, Any] = {
        "parameters": 25_000_000,
        "parameter_bytes": 100e6,
        "variables": 160,
        "dense_bytes": 100e6,
        "activation_bytes": 20e6,
        "largest_bytes": 8e6,
        "boundary_bytes": 400e3,
        "examples": 100_000,
        "probes": probes,
    }
    return Workload(**(own | fields))


def gpus(
    *speeds: float,
    each: int = 1,
    memory: float = 40e9,
    network: Link = LINKS["ethernet_100g"],
    preemptible: bool = False,
    **more: Any,
) -> Cluster:
    """One machine for each speed, with `each` GPUs."""
    names = [f"n{number:02}" for number in range(1, len(speeds) + 1)]
    nodes = [node(name, each, kind=DeviceKind.GPU, address=f"10.0.0.{name}") for name in names]
    machines = {
        name: Machine(
            cores=32,
            memory_bytes=256e9,
            device_memory_bytes=memory,
            speed=speed,
            flops_per_s=60e12,
            devices=LINKS["nvlink3"],
            preemptible=preemptible,
        )
        for name, speed in zip(names, speeds, strict=True)
    }
    return Cluster(view=view_of(*nodes), machines=machines, network=network, **more)


def wishes(batch: int = BATCH, strategy: Strategy = Strategy.ONE_DEVICE, **fields: Any) -> Wishes:
    job = {name: fields.pop(name) for name in list(fields) if name in spec().__struct_fields__}
    return Wishes(job=spec(strategy, global_batch_size=batch, **job), **fields)


def asked(workload: Workload, cluster: Cluster, **fields: Any) -> Advice:
    """An advice without what would change it."""
    return advise(workload, cluster, wishes(**fields), with_changes=False)


def winner(advice: Advice) -> Strategy | None:
    best = advice.verdict.best
    return best.candidate.spec.strategy if best else None
