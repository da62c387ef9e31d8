"""A recipe is rehearsed before its first launch: built once on one of its nodes, without its gang.

What the training itself would refuse, as more stages than the model has blocks or a batch larger than the training set,
is so refused before any of its processes starts. What the program raises of its own is left to the training, which
shows it with the user's line. A job waits a second or two for its rehearsal, and for no rehearsal that is not answered.
A program that was built with the same settings within the last day, for whomever, is not built again.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
from django.conf import settings

from orchestrator.domain.fingerprint import fingerprint
from orchestrator.domain.planning import ClusterView
from orchestrator.models import Cluster, Job, Node, Preflight
from orchestrator.services import preflights
from worker_agent.protocol.codec import plain
from worker_agent.protocol.findings import Finding
from worker_agent.protocol.job_spec import JobSpec
from worker_agent.protocol.states import Kind

BUILD_LIMIT_S = 60.0
# A node that is there takes a command at once, and builds at once unless it is building for others.
TAKEN_WITHIN = timedelta(seconds=10)
BUILT_WITHIN = timedelta(seconds=BUILD_LIMIT_S + 30)


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
    row = _known(job, spec, now) or _begin(job, spec, cluster, view, now)
    if row is None:
        return Rehearsed()
    if row.ended_at is None and now > _due(row):
        preflights.end(row, now=now)
        row.save(update_fields=["ended_at", "ports_until"])
    if row.ended_at is None:
        place = next((asked["name"] for asked in row.nodes.values() if asked["builds"]), "a node")
        return Rehearsed(waits_for=f"its program is being built once on {place}, as before every first launch")
    found = _findings(row)
    return Rehearsed(
        refused=" ".join(f"{finding.why}. {finding.remedy}." for finding in found if finding.certain),
        warnings=tuple(f"{finding.what}: {finding.why}" for finding in found if not finding.blocks),
    )


def _known(job: Job, spec: JobSpec, now: datetime) -> Preflight | None:
    """The latest time that such a program was built. What another job was refused for is looked at again."""
    alike = Preflight.objects.filter(fingerprint=fingerprint(spec), created_at__gt=now - preflights.KEPT_FOR)
    for row in alike.select_for_update().order_by("-pk"):
        if row.job_id == job.pk or not any(finding.certain for finding in _findings(row)):
            return row
    return None


def _begin(job: Job, spec: JobSpec, cluster: Cluster, view: ClusterView, now: datetime) -> Preflight | None:
    """Ask the node of its leader to build it; None while there is no such node."""
    placed = preflights.place(spec, view)
    leader = None if isinstance(placed, str) else preflights.leader_of(placed)
    if leader is None:
        return None
    preflights.forget_old(now=now)
    row = Preflight.objects.create(
        owner=job.owner,
        cluster=cluster,
        code=job.code,
        spec=plain(spec),
        fingerprint=fingerprint(spec),
        job=job,
        ports_until=now,
        created_at=now,
    )
    probe = msgspec.structs.replace(
        preflights.question(row, cluster, spec), builds=True, trains=False, build_limit_s=BUILD_LIMIT_S
    )
    preflights.post(row, Node.objects.get(pk=leader.node_id), probe, now=now)
    return row


def _due(row: Preflight) -> datetime:
    return row.created_at + (BUILT_WITHIN if preflights.acknowledged(row) else TAKEN_WITHIN)


def _findings(row: Preflight) -> list[Finding]:
    reports: list[Any] = [asked["report"] for asked in row.nodes.values() if "report" in asked]
    return [msgspec.convert(finding, Finding) for report in reports for finding in report["findings"]]
