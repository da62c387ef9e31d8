"""How far jobs are: progress and epoch values of a batch become one update of the jobs' rows. `records` calls this."""

from collections.abc import Sequence

from django.db.models import Case, F, JSONField, Q, Value, When
from django.db.models.functions import Greatest

from orchestrator import live
from orchestrator.models import Job, Replica
from orchestrator.queries import jobs as job_queries
from worker_agent.protocol.records import Progress, Summary

COUNT_MAX = 2**31 - 1
STEP_MAX = 2**63 - 1
METRICS_PER_JOB = 100
METRIC_NAME_CHARS = 200
COLUMNS = ("step", "total_steps", "epoch", "epochs")


def advance(said: Sequence[tuple[Replica, Sequence[Progress | Summary]]]) -> None:
    """Move the jobs of these replicas forward and announce them. An earlier attempt's replicas move nothing."""
    gains: dict[int, _Gain] = {}
    for replica, records in said:
        if replica.attempt == replica.job.attempt:
            gain = gains.setdefault(replica.job_id, _Gain(replica.job))
            for record in records:
                gain.add(record)
    if not gains:
        return
    current = Q()
    for job_id, gain in gains.items():
        current |= Q(pk=job_id, attempt=gain.job.attempt)
    Job.objects.filter(current).update(
        revision=F("revision") + 1,
        metrics=Case(*(When(pk=pk, then=Value(gain.metrics, JSONField())) for pk, gain in gains.items())),
        **{
            column: Greatest(
                column, Case(*(When(pk=pk, then=Value(getattr(gain, column))) for pk, gain in gains.items()))
            )
            for column in COLUMNS
        },
    )
    for job in Job.objects.select_related("owner", "cluster").filter(pk__in=gains):
        event = live.job_changed(job_queries.summary(job))
        live.announce(live.job_group(job.pk), [event])
        live.announce(live.JOBS, [event])


class _Gain:
    """What a batch adds to one job. Within an attempt nothing goes back: the database takes the greater number."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.step = self.total_steps = self.epoch = self.epochs = 0
        self.metrics: dict[str, object] = dict(job.metrics)

    def add(self, record: Progress | Summary) -> None:
        self.epoch = max(self.epoch, _within(record.epoch, COUNT_MAX))
        if isinstance(record, Progress):
            self.step = max(self.step, _within(record.step, STEP_MAX))
            self.total_steps = max(self.total_steps, _within(record.total_steps, STEP_MAX))
            self.epochs = max(self.epochs, _within(record.epochs, COUNT_MAX))
            return
        for name, value in record.metrics.items():
            known = name[:METRIC_NAME_CHARS].replace("\0", "")
            if known in self.metrics or len(self.metrics) < METRICS_PER_JOB:
                self.metrics[known] = live.jsonable(value)


def _within(number: int, most: int) -> int:
    return min(max(number, 0), most)
