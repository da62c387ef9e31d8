"""A recipe is rehearsed before its first launch: built once on one of its nodes, without its gang.

What the training itself would refuse, as more stages than the model has blocks or a batch larger than the training set,
is so refused before any of its processes starts. What the program raises of its own is left to the training, which
shows it with the user's line. A node that is busy is asked again, and a rehearsal that nobody answers holds no job up.
A program that was built with the same settings within the last day, for whomever, is not built again.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings

from orchestrator.domain.placement.planning import ClusterView
from orchestrator.domain.placement.rehearsal import Verdict, fingerprint
from orchestrator.models import Cluster, Job, Node, Preflight, ProbedNode
from orchestrator.services.trials import probing
from worker_agent.protocol.findings import Finding
from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.protocol.states import JobStatus, Kind

BUILD_LIMIT_S = 60.0
# A node that is there takes a command at once, and builds at once unless it is building for others.
ANSWER_WITHIN, BUILD_WITHIN = timedelta(seconds=10), timedelta(seconds=BUILD_LIMIT_S + 30)
# Nodes that are busy are asked again after a while, and for so long.
AGAIN_AFTER = timedelta(seconds=5)
BUSY_FOR = timedelta(minutes=5)
READ = (
    *("name", "verdict", "findings", "answered_at", "node__state"),
    *("preflight__job_id", "preflight__fingerprint", "preflight__created_at"),
)
# A database takes a limited number of values in one question.
ASKED_AT_ONCE = 1000


@dataclass(frozen=True)
class Rehearsed:
    """What a rehearsal says of a job: `refused` for good, or it `waits_for` the answer; neither: it may be launched.
    `warnings` are for its history. With `is_due`, a node is to be asked first, for all that are built `alike`."""

    refused: str = ""
    waits_for: str = ""
    warnings: tuple[str, ...] = ()
    is_due: bool = False
    alike: str = ""


def rehearse(*, job: Job, spec: JobSpec, cluster: Cluster, view: ClusterView, now: datetime) -> Rehearsed:
    """How the job's rehearsal went; it is begun if there was none. Called with the cluster's row locked."""
    found = Rehearsals([(job, spec, cluster)], now=now).of(job)
    if not found.is_due:
        return found
    name = _begin(job, spec, cluster, view, now)
    return Rehearsed(waits_for=_tried_out_on(name)) if name else Rehearsed()


class Rehearsals:
    """What is known of the rehearsals of these jobs, read at once: as many queries for a thousand as for one."""

    def __init__(self, jobs: Iterable[tuple[Job, JobSpec, Cluster]], *, now: datetime) -> None:
        self._now = now
        self._built_alike = {
            job.pk: fingerprint(spec, cluster.environment)
            for job, spec, cluster in jobs
            if settings.REHEARSE and not job.attempt and spec.kind is Kind.RECIPE
        }
        self._built: set[str] = set()
        self._awaited: dict[str, ProbedNode] = {}
        self._own: dict[tuple[int | None, str], ProbedNode] = {}
        self._since: dict[int | None, datetime] = {}
        fingerprints = sorted(set(self._built_alike.values()))
        for first in range(0, len(fingerprints), ASKED_AT_ONCE):
            self._read(fingerprints[first : first + ASKED_AT_ONCE])

    def of(self, job: Job) -> Rehearsed:
        """How the rehearsal of one of them stands."""
        alike = self._built_alike.get(job.pk)
        if alike is None:
            return Rehearsed()
        own = self._own.get((job.pk, alike))
        found = [Finding(**each) for each in own.findings] if own else []
        if own is not None and own.verdict == Verdict.REFUSED:
            return Rehearsed(refused=" ".join(f"{each.why}. {each.remedy}." for each in found if each.certain))
        if alike in self._built:
            return Rehearsed(warnings=tuple(f"{each.what}: {each.why}" for each in found if not each.blocks))
        running = self._awaited.get(alike)
        if running is None and own is not None:
            if why := self._why_given_up(own, found):
                return Rehearsed(warnings=(f"its program was not tried out before its first launch: {why}",))
            running = own if own.answered_at and self._now - own.answered_at < AGAIN_AFTER else None
        if running is None:
            return Rehearsed(is_due=True, alike=alike)
        return Rehearsed(waits_for=_tried_out_on(running.name))

    def _read(self, fingerprints: list[str]) -> None:
        alike = ProbedNode.objects.filter(preflight__fingerprint__in=fingerprints, builds=True)
        lately = alike.filter(verdict=Verdict.BUILT, preflight__created_at__gt=self._now - probing.KEPT_FOR)
        self._built |= set(lately.values_list("preflight__fingerprint", flat=True).distinct())
        rows = alike.exclude(preflight__job=None).select_related("preflight", "node").only(*READ).order_by("-pk")
        for row in rows.awaited(self._now):
            self._awaited[row.preflight.fingerprint] = row
        for row in rows.filter(preflight__job__status=JobStatus.SUBMITTED.value):
            self._own.setdefault((row.preflight.job_id, row.preflight.fingerprint), row)
            self._since[row.preflight.job_id] = row.preflight.created_at

    def _why_given_up(self, own: ProbedNode, found: list[Finding]) -> str:
        """After a node that was busy, or whose agent is away, one is asked again for a while; after one that says
        nothing none is. "" when one is."""
        if own.answered_at is None and not own.is_away:
            return f"{own.name} did not answer in time"
        if self._since[own.preflight.job_id] >= self._now - BUSY_FOR:
            return ""
        return "; ".join(finding.why for finding in found) or f"{own.name} was too busy"


def withdraw(*, job: Job, now: datetime) -> None:
    """The job has been stopped: what is being built for it is ended. Another one that is built alike begins its own."""
    for row in Preflight.objects.select_for_update().filter(job=job, ended_at=None):
        probing.withdraw(row, now=now)


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


def _tried_out_on(name: str) -> str:
    return f"its program is being tried out on {name}, as before every first launch"
