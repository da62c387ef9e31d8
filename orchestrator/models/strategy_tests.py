"""Strategy tests: one job under several strategies, side by side; its candidates, and each run of them."""

from enum import StrEnum

from django.conf import settings
from django.db import models

from orchestrator.models.accounts import User
from orchestrator.models.jobs import Code, Job
from orchestrator.models.machines import Cluster
from worker_agent.protocol.codec import typed
from worker_agent.protocol.job.job_spec import JobSpec


class TestStatus(StrEnum):
    """Where a strategy test stands. One that is paused lets the job that runs come to its end."""

    __test__ = False  # pytest would collect a class of this name

    RUNNING = "running"
    PAUSED = "paused"
    FINISHED = "finished"
    STOPPED = "stopped"


class StrategyTest(models.Model):
    """A job that is run under several strategies, `rounds` times each, until `samples` examples (0: all epochs) or
    `minutes` are over. `request` is what was asked for, as `POST /jobs` takes it, without what makes a candidate.
    Where a metric is the target, the time to `target_value` decides.
    """

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="strategy_tests")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="strategy_tests")
    code = models.ForeignKey(Code, on_delete=models.PROTECT, related_name="strategy_tests")
    name = models.CharField(max_length=100)
    request = models.JSONField()
    samples = models.PositiveBigIntegerField(default=0)
    minutes = models.FloatField()
    rounds = models.PositiveIntegerField()
    target_metric = models.CharField(max_length=200, blank=True)
    target_value = models.FloatField(null=True, blank=True)
    status = models.CharField(
        max_length=10, choices=[(s.value, s.value) for s in TestStatus], default=TestStatus.RUNNING.value
    )
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [models.Index(fields=["status"], name="strategy_test_by_status")]

    def __str__(self) -> str:
        return f"t-{self.pk} {self.name}"

    def may_be_changed_by(self, person: User) -> bool:
        """Whether this person may stop, pause, extend or delete it."""
        return person.may_run_jobs and person.may_act_for(self.owner_id)


class Candidate(models.Model):
    """A strategy with its layout, as the whole job that it makes (`spec`). `layout` is what the person chose of it."""

    test = models.ForeignKey(StrategyTest, on_delete=models.CASCADE, related_name="candidates")
    place = models.PositiveIntegerField()
    label = models.CharField(max_length=200)
    layout = models.JSONField()
    spec = models.JSONField()
    withdrawn = models.BooleanField(default=False)

    class Meta:
        ordering = ["place"]
        constraints = [models.UniqueConstraint(fields=["test", "place"], name="candidate_place_unique")]

    @property
    def typed_spec(self) -> JobSpec:
        """The spec as the frozen message."""
        return typed(self.spec, JobSpec)


class Run(models.Model):
    """One job of a candidate. `measured` once it has ended (`domain/strategy_test/measured.py`), else why not."""

    candidate = models.ForeignKey(Candidate, on_delete=models.CASCADE, related_name="runs")
    job = models.OneToOneField(Job, null=True, on_delete=models.SET_NULL, related_name="strategy_run")
    is_over = models.BooleanField(default=False)
    measured = models.JSONField(null=True, blank=True)
    reason = models.TextField(blank=True)

    class Meta:
        ordering = ["pk"]
        indexes = [
            models.Index(fields=["candidate"], condition=models.Q(is_over=False), name="strategy_run_open"),
        ]
