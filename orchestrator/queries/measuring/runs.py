"""What a job that has ended measured: its rate, its parts of a step, what it needed and what it reached."""

from collections.abc import Mapping
from statistics import median

import numpy as np

from orchestrator import series as storage
from orchestrator.domain import better, step_time
from orchestrator.domain.loss import loss_name
from orchestrator.domain.strategy_test.measured import Measured, rate_of, reached_s
from orchestrator.models import Job, Replica
from orchestrator.queries.measuring import step_parts
from worker_agent.protocol.job.gang_shape import device_count, has_chief, is_leader
from worker_agent.protocol.records import StepPart
from worker_agent.protocol.states import Kind

RATE, STALENESS = "examples_per_s", "staleness"


def measure(job: Job, *, target_metric: str = "", target_value: float | None = None) -> Measured | None:
    """What the job, which has ended, measured; None where it took too few steps to tell."""
    spec = job.typed_spec
    gang = list(Replica.objects.filter(job=job, attempt=job.attempt, superseded=False))
    leader = next((each for each in gang if is_leader(each.role, each.index, has_chief=has_chief(spec))), None)
    if leader is None or job.ended_at is None:
        return None
    owner = storage.Owner(replica_id=leader.pk)
    curves = {name: curve for (_, name), curve in storage.read([owner]).items()}
    told = _steps_of(curves)
    rate = rate_of(told.steps, told.times) if told else None
    if told is None or rate is None:
        return None
    per_epoch = leader.facts.get("steps_per_epoch")
    target = curves.get(target_metric)
    reached = None
    if target is not None and target_value is not None:
        is_lower = better.falls(target_metric) is not False
        at = reached_s(target.steps, target.times, target.values, target=target_value, falls=is_lower)
        reached = at - float(told.times[0]) if at is not None else None
    stale = curves.get(STALENESS)
    lately = step_time.recent(step_parts.of_job(job))
    parts = {part.value: median(each[part] for each in lately.values()) for part in StepPart} if lately else {}
    memory = [each.facts.get("memory_bytes") for each in gang]
    began = min((each.started_at for each in gang if each.started_at), default=job.started_at or job.ended_at)
    return Measured(
        examples_per_s=rate * spec.global_batch_size if spec.kind is Kind.RECIPE else _rate_told(curves, rate),
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


def _steps_of(curves: Mapping[str, storage.Curve]) -> storage.Curve | None:
    """The series by which steps are timed: the loss or, of a script that tells none, the one with most points."""
    name = loss_name(curves) or max(curves, key=lambda each: len(curves[each].steps), default="")
    return curves.get(name)


def _rate_told(curves: Mapping[str, storage.Curve], steps_per_s: float) -> float:
    """Of a script, whose batch nobody knows but itself: the examples a second that it told, else its steps a second."""
    told = curves.get(RATE)
    return float(np.median(told.values)) if told is not None else steps_per_s
