"""Copies of the metrics of jobs, by which lists are sorted: made with every change of `Job.metrics`."""

from collections.abc import Iterable, Mapping

from orchestrator.domain.loss import LOSS, loss_name
from orchestrator.models import Job, JobMetric


def copy(reached: Mapping[Job, Iterable[str]]) -> None:
    """Copy these metrics of jobs. What is no finite number is a word in `Job.metrics`, and empty here. What is taken
    as the loss of a job is copied as `loss`, too."""
    rows = [
        JobMetric(job=job, name=name, value=value if isinstance(value, int | float) else None)
        for job, names in reached.items()
        for name, value in sorted(_told(job, names).items())
    ]
    if rows:
        JobMetric.objects.bulk_create(
            rows, update_conflicts=True, unique_fields=["job", "name"], update_fields=["value"]
        )


def renew(job: Job) -> None:
    """Copy all of its metrics, after it went back to earlier ones or to none."""
    JobMetric.objects.filter(job=job).exclude(name__in=_told(job, job.metrics)).delete()
    copy({job: job.metrics})


def _told(job: Job, names: Iterable[str]) -> dict[str, object]:
    told = {name: job.metrics[name] for name in names}
    loss = loss_name(job.metrics)
    return {LOSS: told[loss]} | told if loss in told else told
