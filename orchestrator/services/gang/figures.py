"""Copies of the metrics of jobs, by which lists are sorted: made with every change of `Job.metrics`."""

from collections.abc import Iterable, Mapping

from orchestrator.models import Job, JobMetric


def copy(reached: Mapping[Job, Iterable[str]]) -> None:
    """Copy these metrics of jobs. What is no finite number is a word in `Job.metrics`, and empty here."""
    rows = [
        JobMetric(job=job, name=name, value=value if isinstance(value := job.metrics[name], int | float) else None)
        for job, names in reached.items()
        for name in sorted(names)
    ]
    if rows:
        JobMetric.objects.bulk_create(
            rows, update_conflicts=True, unique_fields=["job", "name"], update_fields=["value"]
        )


def renew(job: Job) -> None:
    """Copy all of its metrics, after it went back to earlier ones or to none."""
    JobMetric.objects.filter(job=job).exclude(name__in=job.metrics).delete()
    copy({job: job.metrics})
