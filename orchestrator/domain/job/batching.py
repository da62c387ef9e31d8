"""Batch and learning-rate arithmetic: global batch → worker → replica → part, and the rate they train with.

Synchronous strategies divide the global batch over all devices of all workers: one optimizer step sees all of it.
Under parameter servers every worker makes its own updates, so the global batch is what one worker computes for one
update, whatever their number: adding workers adds updates per second and leaves the maths of one update alone.
Tensor parallel splits layers over `model_parallel` devices, so that many devices are one replica; a pipeline is one
replica altogether, and the batch goes through it in micro-batches. A TPU's cores are counted when it is reached.

Linear scaling with warm-up is Goyal et al. 2017, "Accurate, Large Minibatch SGD" (arXiv:1706.02677): with k replicas
in sync the rate is k times as large, and it is reached in equal steps from the unscaled rate over the first epochs.
Square-root scaling keeps the variance of an update the same instead (Krizhevsky 2014, arXiv:1404.5997, section 5).
"""

from dataclasses import dataclass
from math import sqrt

from orchestrator.domain.words import counted
from worker_agent.protocol.job.choices import LrScaling
from worker_agent.protocol.job.gang_shape import parts_of, replicas_in_sync
from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.protocol.job.strategies import STRATEGIES
from worker_agent.protocol.job.strategy_row import Split

# What the arithmetic needs beside the gang's shape.
FIELDS = frozenset({"global_batch_size", "accumulation", "model_parallel", "micro_batches"})


@dataclass(frozen=True)
class BatchPlan:
    """One optimizer step taken apart. `learning_rate` is the effective one; None leaves the recipe's own.

    `per_replica` examples a step are computed in `parts` equal parts of `per_part`, one after the other. One process
    reads `per_worker` for a step.
    """

    global_batch_size: int
    workers: int
    devices_per_worker: int
    replicas_in_sync: int
    per_worker: int
    per_replica: int
    parts: int
    per_part: int
    base_learning_rate: float | None
    learning_rate: float | None
    warmup_epochs: float
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Indivisible:
    """The global batch cannot be split evenly: the sentence, and the nearest sizes that can."""

    message: str
    nearest: tuple[int, ...]


def of_spec(spec: JobSpec, *, held: int = 0) -> BatchPlan | Indivisible:
    """The arithmetic of a recipe's job, or why it does not come out even. Counts are at least 1.

    `held` is the global batch of the checkpoint that the job begins with, if there is one: other sizes are no remedy.
    """
    replicas, parts = replicas_in_sync(spec), parts_of(spec)
    size = spec.global_batch_size
    if size % (replicas * parts) and held:
        return _held(held, spec)
    if size % (replicas * parts):
        below = size - size % (replicas * parts)
        nearest = tuple(value for value in (below, below + replicas * parts) if value > 0)
        return Indivisible(f"{size} does not divide over {_gang(spec)}: use {' or '.join(map(str, nearest))}", nearest)
    per_replica = size // replicas
    effective = effective_rate(spec.learning_rate, scaling=spec.lr_scaling, replicas=replicas)
    warmup = spec.warmup_epochs if spec.lr_scaling != LrScaling.NONE and replicas > 1 else 0.0
    sentences = (
        _split_sentence(spec, per_replica),
        _parts_sentence(spec, per_replica, parts),
        _rate_sentence(spec, effective, replicas, warmup),
    )
    return BatchPlan(
        global_batch_size=size,
        workers=spec.workers,
        devices_per_worker=spec.devices_per_worker,
        replicas_in_sync=replicas,
        per_worker=_per_worker(spec, per_replica),
        per_replica=per_replica,
        parts=parts,
        per_part=per_replica // parts,
        base_learning_rate=spec.learning_rate,
        learning_rate=effective,
        warmup_epochs=warmup,
        sentences=tuple(filter(None, sentences)),
    )


def _held(batch: int, spec: JobSpec) -> Indivisible:
    gang = _gang(spec)
    if batch % (replicas_in_sync(spec) * parts_of(spec)) == 0:
        return Indivisible(
            f"{spec.global_batch_size} does not divide over {gang}: use {batch}, as its checkpoint does", (batch,)
        )
    return Indivisible(
        f"its checkpoint requires a global batch of {batch}, which does not divide over {gang}: choose numbers "
        f"whose product divides {batch}",
        (),
    )


def effective_rate(rate: float | None, *, scaling: str, replicas: int) -> float | None:
    """The learning rate after scaling; None (the recipe's own rate) stays None."""
    if rate is None or scaling == LrScaling.NONE:
        return rate
    return rate * (replicas if scaling == LrScaling.LINEAR else sqrt(replicas))


def _per_worker(spec: JobSpec, per_replica: int) -> int:
    match STRATEGIES[spec.strategy].split:
        case Split.GROUPS:
            return per_replica * -(-spec.devices_per_worker // spec.model_parallel)
        case Split.STAGES | Split.CORES:
            return per_replica
        case Split.DEVICES | Split.ONE_WORKER:
            return per_replica * spec.devices_per_worker


def _gang(spec: JobSpec) -> str:
    """What the batch is divided over."""
    replicas, parts = replicas_in_sync(spec), parts_of(spec)
    split = STRATEGIES[spec.strategy].split
    if split is Split.STAGES:
        return counted(parts, "micro-batch", "es")
    many = f" × {parts} parts of a step = {replicas * parts}" if parts > 1 else ""
    if split is Split.GROUPS and spec.model_parallel > 1:
        return f"{counted(replicas, 'group')} of {counted(spec.model_parallel, 'device')}{many}"
    devices = counted(spec.devices_per_worker, "device")
    gang = devices if split is Split.ONE_WORKER else f"{counted(spec.workers, 'worker')} × {devices}"
    return f"{gang} = {replicas} replicas" if not many else gang + many


def _split_sentence(spec: JobSpec, per_replica: int) -> str:
    size, workers, devices = spec.global_batch_size, spec.workers, spec.devices_per_worker
    gang = f"{counted(workers, 'worker')} × {counted(devices, 'device')}"
    match STRATEGIES[spec.strategy].split:
        case Split.ONE_WORKER:
            split = f" ({counted(devices, 'device')} × {per_replica})" if devices > 1 else ""
            others = f"{counted(workers, 'worker')} make updates of their own"
            return f"{size} examples make one update of one worker{split}; {others}"
        case Split.CORES:
            return f"{size} examples a step, divided over the cores of the TPU"
        case Split.STAGES:
            return f"{size} examples a step pass through {counted(workers * devices, 'stage')} ({gang})"
        case Split.GROUPS if spec.model_parallel > 1:
            groups = workers * devices // spec.model_parallel
            each = f"{counted(groups, 'group')} of {counted(spec.model_parallel, 'device')}"
            return f"{size} examples a step = {each} × {per_replica}; the devices of a group hold parts of every layer"
    if workers == 1 and devices == 1:
        return f"{size} examples a step on one device"
    note = STRATEGIES[spec.strategy].batch_note
    return f"{size} examples a step = {gang} × {per_replica} per replica" + (f"; {note}" if note else "")


def _parts_sentence(spec: JobSpec, per_replica: int, parts: int) -> str:
    if STRATEGIES[spec.strategy].split is Split.STAGES:
        stages = spec.workers * spec.devices_per_worker
        idle = (stages - 1) / (parts + stages - 1)
        return f"{parts} micro-batches of {per_replica // parts}: ideally each stage is idle {idle:.0%} of a step"
    if parts == 1:
        return ""
    return f"each replica sums {parts} passes of {per_replica // parts} examples before one update"


def _rate_sentence(spec: JobSpec, effective: float | None, replicas: int, warmup: float) -> str:
    rate, scaling = spec.learning_rate, spec.lr_scaling
    if rate is None or effective is None:
        return "learning rate: the recipe's own"
    if scaling == LrScaling.NONE:
        return f"learning rate {rate:g}, not scaled"
    if replicas == 1:
        name = "linear" if scaling == LrScaling.LINEAR else "square-root"
        return f"learning rate {rate:g}: one replica in sync, so {name} scaling changes nothing"
    factor = f"{replicas} replicas in sync" if scaling == LrScaling.LINEAR else f"√{replicas} (replicas in sync)"
    text = f"learning rate {rate:g} × {factor} = {effective:g}"
    return f"{text}, reached from {rate:g} over the first {warmup:g} epochs" if warmup else text
