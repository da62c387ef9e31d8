"""Advices: which strategy suits a job on a cluster, as it was asked for and as it was answered."""

from enum import StrEnum

from django.conf import settings
from django.db import models

from orchestrator.models.columns import JSONField
from orchestrator.models.jobs import Code
from orchestrator.models.machines import Cluster
from orchestrator.models.trials import Preflight


class AdviceStatus(StrEnum):
    """Where an advice stands."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class Advice(models.Model):
    """An advice for the job that `request` asks for, as `POST /jobs` takes it, and `wishes` of the one who asked.

    Its model is looked at in the trial `preflight`, of which `spec` is the job under one device. `result` is
    `domain.advice.Advice` as JSON once it is done; `reason` says why there is none.
    """

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="advices")
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="advices")
    code = models.ForeignKey(Code, on_delete=models.CASCADE, related_name="advices")
    preflight = models.ForeignKey(Preflight, null=True, on_delete=models.SET_NULL, related_name="advices")
    request = JSONField()
    wishes = JSONField()
    spec = JSONField()
    status = models.CharField(
        max_length=8, choices=[(s.value, s.value) for s in AdviceStatus], default=AdviceStatus.RUNNING.value
    )
    level = models.CharField(max_length=8, blank=True)
    result = JSONField(null=True, blank=True)
    reason = models.TextField(blank=True)
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
