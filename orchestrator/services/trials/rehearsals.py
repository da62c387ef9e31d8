"""A recipe is rehearsed before its first launch: built once on one of its nodes, without its gang.

What the training itself would refuse, as more stages than the model has blocks or a batch larger than the training set,
is so refused before any of its processes starts. What the program raises of its own is left to the training, which
shows it with the user's line. A node that is busy is asked again, and a rehearsal that nobody answers holds no job up.
A program that was built with the same settings within the last day, for whomever, is not built again.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings

from orchestrator.domain.placement.planning import ClusterView
from orchestrator.domain.placement.rehearsal import Verdict, fingerprint
from orchestrator.models import Cluster, Job, Node, Preflight, ProbedNode
from orchestrator.services.trials import probing
from worker_agent.protocol.findings import Finding
from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.protocol.states import Kind

BUILD_LIMIT_S = 60.0
# A node that is there takes a command at once, and builds at once unless it is building for others.
ANSWER_WITHIN, BUILD_WITHIN = timedelta(seconds=10), timedelta(seconds=BUILD_LIMIT_S + 30)
# Nodes that are busy are asked again after a while, and for so long.
AGAIN_AFTER = timedelta(seconds=5)
BUSY_FOR = timedelta(minutes=5)


@dataclass(frozen=True)
class Rehearsed:
    """What a rehearsal says of a job: `refused` for good, or it `waits_for` the answer; neither: it may be launched.
    `warnings` are for its history."""

    refused: str = ""
    waits_for: str = ""
    warnings: tuple[str, ...] = ()


def rehearse(*, job: Job, spec: JobSpec, cluster: Cluster, view: ClusterView, now: datetime) -> Rehearsed:
    """How the job's rehearsal went; it is begun if there was none. Called with the cluster's row locked."""
    if not settings.REHEARSE or job.attempt or spec.kind is not Kind.RECIPE:
        return Rehearsed()
    alike = ProbedNode.objects.filter(preflight__fingerprint=fingerprint(spec, cluster.environment), builds=True)
    own = alike.filter(preflight__job=job).order_by("pk").last()
    found = [Finding(**each) for each in own.findings] if own else []
    if own is not None and own.verdict == Verdict.REFUSED:
        return Rehearsed(refused=" ".join(f"{each.why}. {each.remedy}." for each in found if each.certain))
    if alike.filter(verdict=Verdict.BUILT, preflight__created_at__gt=now - probing.KEPT_FOR).exists():
        return Rehearsed(warnings=tuple(f"{each.what}: {each.why}" for each in found if not each.blocks))
    running = alike.awaited(now).exclude(preflight__job=None).first()
    if running is None and own is not None:
        if why := _why_given_up(job, own, found, now):
            return Rehearsed(warnings=(f"its program was not tried out before its first launch: {why}",))
        running = own if own.answered_at and now - own.answered_at < AGAIN_AFTER else None
    name = running.name if running else _begin(job, spec, cluster, view, now)
    if not name:
        return Rehearsed()
    return Rehearsed(waits_for=f"its program is being tried out on {name}, as before every first launch")


def withdraw(*, job: Job, now: datetime) -> None:
    """The job has been stopped: what is being built for it is ended. Another one that is built alike begins its own."""
    for row in Preflight.objects.select_for_update().filter(job=job, ended_at=None):
        probing.withdraw(row, now=now)


def _why_given_up(job: Job, own: ProbedNode, found: list[Finding], now: datetime) -> str:
    """After a node that was busy, or whose agent is away, one is asked again for a while; after one that says nothing
    none is. "" when one is."""
    if own.answered_at is None and not own.is_away:
        return f"{own.name} did not answer in time"
    if not Preflight.objects.filter(job=job, created_at__lt=now - BUSY_FOR).exists():
        return ""
    return "; ".join(finding.why for finding in found) or f"{own.name} was too busy"


def _begin(job: Job, spec: JobSpec, cluster: Cluster, view: ClusterView, now: datetime) -> str:
    """Have a node of its gang build it, one that builds nothing now if there is such a one; that node's name, "" while
    the gang has no place."""
    placed = probing.place(spec, view)
    if isinstance(placed, str):
        return ""
    busy = set(ProbedNode.objects.awaited(now).filter(builds=True).values_list("node_id", flat=True))
    node_id = next((each.node_id for each in placed if each.node_id not in busy), placed[0].node_id)
    node = Node.objects.get(pk=node_id)
    limits = {"answer_by": now + ANSWER_WITHIN, "build_by": now + BUILD_WITHIN}
    row = probing.begin(spec, cluster, now=now, owner=job.owner, job=job, **limits)
    probing.ask(node, row, spec, now=now, builds=True, trains=False, build_limit_s=BUILD_LIMIT_S)
    return node.name
