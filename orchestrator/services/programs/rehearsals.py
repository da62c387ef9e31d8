"""A recipe is rehearsed before its first launch: built once on one of its nodes, without its gang.

What the training itself would refuse, as more stages than the model has blocks or a batch larger than the training set,
is so refused before any of its processes starts. What the program raises of its own is left to the training, which
shows it with the user's line. A node that is busy is asked again, and a rehearsal that nobody answers holds no job up.
A program that was built with the same settings within the last day, for whomever, is not built again.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
from django.conf import settings

from orchestrator.domain.placement.planning import ClusterView, PlannedReplica
from orchestrator.domain.placement.rehearsal import Verdict, fingerprint
from orchestrator.models import Cluster, Job, Node, Preflight
from orchestrator.services.programs import preflights
from worker_agent.protocol.codec import plain
from worker_agent.protocol.findings import Finding
from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.protocol.states import Kind

BUILD_LIMIT_S = 60.0
# A node that is there takes a command at once, and builds at once unless it is building for others.
TAKEN_WITHIN = timedelta(seconds=10)
BUILT_WITHIN = timedelta(seconds=BUILD_LIMIT_S + 30)
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


def of(*, job: Job, spec: JobSpec, cluster: Cluster, view: ClusterView, now: datetime) -> Rehearsed:
    """How the job's rehearsal went; it is begun if there was none. Called with the cluster's row locked."""
    if not settings.REHEARSE or job.attempt or spec.kind is not Kind.RECIPE:
        return Rehearsed()
    own = _own(job, now)
    found = _findings(own)
    if own is not None and own.verdict == Verdict.REFUSED:
        return Rehearsed(refused=" ".join(f"{each.why}. {each.remedy}." for each in found if each.certain))
    alike = Preflight.objects.filter(fingerprint=fingerprint(spec, cluster.environment))
    if alike.filter(verdict=Verdict.BUILT.value, created_at__gt=now - preflights.KEPT_FOR).exists():
        return Rehearsed(warnings=tuple(f"{each.what}: {each.why}" for each in found if not each.blocks))
    running = alike.filter(ended_at=None, created_at__gte=now - BUILT_WITHIN).exclude(job=None).first()
    if running is None and own is not None and own.ended_at is not None:
        if _is_given_up(own, now):
            return Rehearsed(warnings=(f"its program was not built before its first launch: {_why_not(own)}",))
        running = own if now - own.ended_at < AGAIN_AFTER else None
    row = running or _begin(job, spec, cluster, view, now)
    if row is None:
        return Rehearsed()
    return Rehearsed(waits_for=f"its program is being built once on {_place(row)}, as before every first launch")


def withdraw(*, job: Job, now: datetime) -> None:
    """The job has been stopped: what is being built for it is ended. Another one that is built alike begins its own."""
    for row in Preflight.objects.select_for_update().filter(job=job, ended_at=None):
        preflights.withdraw(row, now=now)


def _own(job: Job, now: datetime) -> Preflight | None:
    """The job's latest rehearsal, ended when its answer is overdue."""
    row = Preflight.objects.select_for_update().filter(job=job).order_by("-pk").first()
    if row is not None and row.ended_at is None and now > _due(row):
        preflights.end(row, now=now)
    return row


def _is_given_up(own: Preflight, now: datetime) -> bool:
    """A node that was busy is asked again, one that says nothing is not."""
    waiting_since = now - BUSY_FOR
    return own.verdict == Verdict.SILENT or Preflight.objects.filter(job=own.job, created_at__lt=waiting_since).exists()


def _why_not(own: Preflight) -> str:
    if own.verdict == Verdict.SILENT:
        return f"{_place(own)} did not answer in time"
    return "; ".join(finding.why for finding in _findings(own)) or f"{_place(own)} had no time for it"


def _begin(job: Job, spec: JobSpec, cluster: Cluster, view: ClusterView, now: datetime) -> Preflight | None:
    """Ask a node of its gang to build it; None while there is no such node."""
    placed = preflights.place(spec, view)
    if isinstance(placed, str):
        return None
    preflights.forget_old(now=now)
    row = Preflight.objects.create(
        owner=job.owner,
        cluster=cluster,
        code=job.code,
        spec=plain(spec),
        fingerprint=fingerprint(spec, cluster.environment),
        job=job,
        ports_until=now,
        created_at=now,
    )
    probe = msgspec.structs.replace(
        preflights.question(row, cluster, spec), builds=True, trains=False, build_limit_s=BUILD_LIMIT_S
    )
    preflights.post(row, Node.objects.get(pk=_builder(placed, now)), probe, now=now)
    return row


def _builder(placed: tuple[PlannedReplica, ...], now: datetime) -> str:
    """The leader's node, or another one of the gang that is building nothing now."""
    running = Preflight.objects.filter(ended_at=None, created_at__gte=now - BUILT_WITHIN)
    busy = {pk for row in running for pk, asked in row.nodes.items() if asked["builds"]}
    leader = preflights.leader_of(placed)
    return next((each.node_id for each in (leader, *placed) if each.node_id not in busy), leader.node_id)


def _due(row: Preflight) -> datetime:
    return row.created_at + (BUILT_WITHIN if preflights.acknowledged(row) else TAKEN_WITHIN)


def _place(row: Preflight) -> str:
    return next(str(asked["name"]) for asked in row.nodes.values() if asked["builds"])


def _findings(row: Preflight | None) -> list[Finding]:
    reports: list[Any] = [asked["report"] for asked in row.nodes.values() if "report" in asked] if row else []
    return [msgspec.convert(finding, Finding) for report in reports for finding in report["findings"]]
