"""What the list of jobs is found and sorted by: copies of what stands on the job itself, with an index."""

from django.db import models

from orchestrator.models.jobs import Job


class JobTag(models.Model):
    """One of `Job.tags`."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="tag_rows")
    word = models.CharField(max_length=32)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "word"], name="job_tag_unique")]
        indexes = [models.Index(fields=["word", "-job"], name="job_by_tag")]


class JobMetric(models.Model):
    """One of `Job.metrics`; `value` None where it is no finite number."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="metric_rows")
    name = models.CharField(max_length=200)
    value = models.FloatField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "name"], name="job_metric_unique")]
        indexes = [models.Index(fields=["name", "value", "-job"], name="job_by_metric")]
