"""Batch and learning-rate arithmetic: global batch → worker → replica, and the rate that the replicas train with.

Synchronous strategies divide the global batch over all devices of all workers: one optimizer step sees all of it.
Under parameter servers every worker makes its own updates, so the global batch is what one worker computes for one
update, whatever their number: adding workers adds updates per second and leaves the maths of one update alone.

Linear scaling with warm-up is Goyal et al. 2017, "Accurate, Large Minibatch SGD" (arXiv:1706.02677): with k replicas
in sync the rate is k times as large, and it is reached in equal steps from the unscaled rate over the first epochs.
"""

from dataclasses import dataclass

from worker_agent.protocol.job_spec import JobSpec
from worker_agent.protocol.states import Strategy


@dataclass(frozen=True)
class BatchPlan:
    """One optimizer step taken apart. `learning_rate` is the effective one; None leaves the recipe's own."""

    global_batch_size: int
    workers: int
    devices_per_worker: int
    replicas_in_sync: int
    per_worker: int
    per_replica: int
    base_learning_rate: float | None
    learning_rate: float | None
    warmup_epochs: float
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Indivisible:
    """The global batch cannot be split evenly: the sentence, and the nearest sizes that can."""

    message: str
    nearest: tuple[int, ...]


def replicas_in_sync(strategy: Strategy, *, workers: int, devices_per_worker: int) -> int:
    """How many devices share one optimizer step."""
    if strategy is Strategy.PARAMETER_SERVER:
        return devices_per_worker
    return workers * devices_per_worker


def divide(
    strategy: Strategy,
    *,
    workers: int,
    devices_per_worker: int,
    global_batch_size: int,
    learning_rate: float | None = None,
    lr_scaling: str = "none",
    warmup_epochs: float = 0.0,
) -> BatchPlan | Indivisible:
    """The arithmetic of one step, or why it does not come out even. Counts are at least 1."""
    replicas = replicas_in_sync(strategy, workers=workers, devices_per_worker=devices_per_worker)
    if global_batch_size % replicas:
        return _indivisible(global_batch_size, replicas, workers, devices_per_worker)
    per_replica = global_batch_size // replicas
    effective = effective_rate(learning_rate, scaling=lr_scaling, replicas=replicas)
    warmup = warmup_epochs if lr_scaling == "linear" and replicas > 1 else 0.0
    return BatchPlan(
        global_batch_size=global_batch_size,
        workers=workers,
        devices_per_worker=devices_per_worker,
        replicas_in_sync=replicas,
        per_worker=per_replica * devices_per_worker,
        per_replica=per_replica,
        base_learning_rate=learning_rate,
        learning_rate=effective,
        warmup_epochs=warmup,
        sentences=(
            _split_sentence(strategy, global_batch_size, workers, devices_per_worker, per_replica),
            _rate_sentence(learning_rate, effective, lr_scaling, replicas, warmup),
        ),
    )


def of_spec(spec: JobSpec) -> BatchPlan | Indivisible:
    """The arithmetic of a job."""
    return divide(
        spec.strategy,
        workers=spec.workers,
        devices_per_worker=spec.devices_per_worker,
        global_batch_size=spec.global_batch_size,
        learning_rate=spec.learning_rate,
        lr_scaling=spec.lr_scaling,
        warmup_epochs=spec.warmup_epochs,
    )


def effective_rate(rate: float | None, *, scaling: str, replicas: int) -> float | None:
    """The learning rate after scaling; None (the recipe's own rate) stays None."""
    if rate is None or scaling != "linear":
        return rate
    return rate * replicas


def _indivisible(size: int, replicas: int, workers: int, devices_per_worker: int) -> Indivisible:
    below = size - size % replicas
    nearest = tuple(value for value in (below, below + replicas) if value > 0)
    gang = f"{_count(workers, 'worker')} × {_count(devices_per_worker, 'device')} = {replicas} replicas"
    return Indivisible(
        message=f"{size} does not divide over {gang}: use {' or '.join(map(str, nearest))}", nearest=nearest
    )


def _split_sentence(strategy: Strategy, size: int, workers: int, devices: int, per_replica: int) -> str:
    if strategy is Strategy.PARAMETER_SERVER:
        return f"{size} examples make one update of one worker; {_count(workers, 'worker')} update on their own"
    if workers == 1 and devices == 1:
        return f"{size} examples a step on one device"
    gang = f"{_count(workers, 'worker')} × {_count(devices, 'device')}"
    return f"{size} examples a step = {gang} × {per_replica} per replica"


def _rate_sentence(rate: float | None, effective: float | None, scaling: str, replicas: int, warmup: float) -> str:
    if rate is None or effective is None:
        return "learning rate: the recipe's own"
    if scaling != "linear":
        return f"learning rate {rate:g}, not scaled"
    if replicas == 1:
        return f"learning rate {rate:g}: one replica in sync, so linear scaling changes nothing"
    text = f"learning rate {rate:g} × {replicas} replicas in sync = {effective:g}"
    return f"{text}, reached from {rate:g} over the first {warmup:g} epochs" if warmup else text


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
