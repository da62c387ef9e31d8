"""Preflights and rehearsals: what nodes were asked before a job starts, and what each of them answered."""

from datetime import datetime

from django.conf import settings
from django.db import models
from django.db.models import Q

from orchestrator.domain.lifecycle import AGENT_AWAY
from orchestrator.domain.placement.rehearsal import Verdict
from orchestrator.models.columns import JSONField
from orchestrator.models.jobs import Code, Job
from orchestrator.models.machines import Cluster, Node
from orchestrator.models.records import Command


class Preflight(models.Model):
    """A check on the nodes of a job that was not submitted (yet). With a `job`, it is that job's rehearsal, which
    Trainyard asks for by itself before the first launch. Jobs of one `fingerprint` are built alike.

    `findings` are those of the control plane. Until it has ended, or `answer_by` is over, nothing is placed on the
    `doors`: the (host, port) pairs that are tried.
    """

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="preflights")
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="preflights")
    code = models.ForeignKey(Code, on_delete=models.CASCADE, related_name="preflights")
    spec = JSONField()
    fingerprint = models.CharField(max_length=64, db_index=True)
    job = models.ForeignKey(Job, null=True, on_delete=models.CASCADE, related_name="rehearsals")
    findings = JSONField(default=list)
    doors = JSONField(default=list)
    created_at = models.DateTimeField()
    answer_by = models.DateTimeField(db_index=True)
    build_by = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)


class ProbedNodes(models.QuerySet["ProbedNode"]):
    """What nodes were asked."""

    def awaited(self, now: datetime) -> "ProbedNodes":
        """Those whose answer may still come. Who builds the program has longer, once its agent has the question."""
        builds = Q(builds=True, command__acked_at__isnull=False, command__refused="", preflight__build_by__gte=now)
        found = self.filter(Q(preflight__answer_by__gte=now) | builds, answered_at=None, preflight__ended_at=None)
        return found.exclude(node__state__in=AGENT_AWAY)


class ProbedNode(models.Model):
    """One node that a preflight has asked, and its answer as `reports.Probed` has it, once it has `answered_at`.

    The one that `builds` the program answers with a `verdict` on it as well.
    """

    preflight = models.ForeignKey(Preflight, on_delete=models.CASCADE, related_name="asked")
    node = models.ForeignKey(Node, null=True, on_delete=models.SET_NULL, related_name="probes")
    name = models.CharField(max_length=100)
    command = models.ForeignKey(Command, null=True, on_delete=models.SET_NULL, related_name="+")
    builds = models.BooleanField()
    answered_at = models.DateTimeField(null=True, blank=True)
    verdict = models.CharField(max_length=8, choices=[(v.value, v.value) for v in Verdict], blank=True)
    findings = JSONField(default=list)
    taken = JSONField(default=list)
    unreached = JSONField(default=dict)
    facts = JSONField(default=dict)
    model = JSONField(null=True, blank=True)

    objects = ProbedNodes.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["preflight", "node"], name="probed_node_unique")]

    @property
    def is_away(self) -> bool:
        """Whether its node is removed, or has no agent that could answer."""
        return self.node is None or self.node.state in AGENT_AWAY
