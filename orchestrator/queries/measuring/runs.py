"""What a job that has ended measured: its rate, its parts of a step, what it needed and what it reached."""

from statistics import median

import numpy as np

from orchestrator import series as storage
from orchestrator.domain import better, step_time
from orchestrator.domain.strategy_test.measured import Measured, rate_of, reached_s
from orchestrator.models import Job, Replica
from orchestrator.queries.measuring import step_parts
from worker_agent.protocol.job.gang_shape import device_count, has_chief, is_leader
from worker_agent.protocol.records import StepPart

LOSS = "loss"


def measure(job: Job, *, target_metric: str = "", target_value: float | None = None) -> Measured | None:
    """What the job, which has ended, measured; None where it took too few steps to tell."""
    spec = job.typed_spec
    gang = list(Replica.objects.filter(job=job, attempt=job.attempt, superseded=False))
    leader = next((each for each in gang if is_leader(each.role, each.index, has_chief=has_chief(spec))), None)
    if leader is None or job.ended_at is None:
        return None
    owner = storage.Owner(replica_id=leader.pk)
    names = {LOSS, "staleness", target_metric} - {""}
    curves = storage.read([owner], names=names)
    losses = curves.get((owner, LOSS))
    rate = rate_of(losses.steps, losses.times) if losses is not None else None
    if losses is None or rate is None:
        return None
    per_epoch = leader.facts.get("steps_per_epoch")
    target = curves.get((owner, target_metric))
    reached = None
    if target is not None and target_value is not None:
        is_lower = better.falls(target_metric) is not False
        at = reached_s(target.steps, target.times, target.values, target=target_value, falls=is_lower)
        reached = at - float(losses.times[0]) if at is not None else None
    stale = curves.get((owner, "staleness"))
    lately = step_time.recent(step_parts.of_job(job))
    parts = {part.value: median(each[part] for each in lately.values()) for part in StepPart} if lately else {}
    memory = [each.facts.get("memory_bytes") for each in gang]
    began = min((each.started_at for each in gang if each.started_at), default=job.started_at or job.ended_at)
    return Measured(
        examples_per_s=rate * spec.global_batch_size,
        step_time_ms=1000 / rate,
        devices=device_count(spec),
        seconds=(job.ended_at - began).total_seconds(),
        epoch_s=per_epoch / rate if isinstance(per_epoch, int) and per_epoch > 0 else None,
        target_s=reached,
        final={name: float(value) for name, value in job.metrics.items() if isinstance(value, int | float)},
        parts=parts,
        staleness=float(np.median(stale.values)) if stale is not None else None,
        memory_bytes=max((float(each) for each in memory if isinstance(each, int | float)), default=None),
        restarts=job.attempt - 1,
    )
