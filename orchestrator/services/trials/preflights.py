"""Checks on the nodes: each node that a job would get is asked to look whether it could run, and nothing is started.

Begun from the form or by REST (`services/jobs/jobs.py`); whoever asks reads `answers_to`. While its ports are tried,
nothing is placed on them. What it warned of is written into the history of the job that is then submitted
(`warnings_about`).
"""

import secrets
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Literal

from django.db import transaction

from orchestrator.models import Cluster, Node, Preflight, ProbedNode, User
from orchestrator.queries.errors import NotFound
from orchestrator.services.errors import Conflict
from orchestrator.services.nodes.cluster_snapshot import cluster_view
from orchestrator.services.trials import probing
from worker_agent.protocol.codec import plain
from worker_agent.protocol.commands import Door
from worker_agent.protocol.findings import Finding
from worker_agent.protocol.job.job_spec import JobSpec, keeps_checkpoints
from worker_agent.protocol.states import DeviceKind, Role

# Until a node's answer has come, with time for commands and reports on their way, and for a disk that hangs.
ANSWER_WITHIN, BUILD_WITHIN = timedelta(seconds=40), timedelta(seconds=180)
RECENT = timedelta(hours=1)
AT_ONCE_MAX = 3


@dataclass(frozen=True)
class Found(Finding):
    """One finding; `node` is "" for what the control plane found."""

    node: str = ""

    @property
    def severity(self) -> Literal["error", "warning"]:
        """In the words of REST."""
        return "error" if self.blocks else "warning"


@dataclass(frozen=True)
class Answers:
    """A preflight as it stands. `waiting` are the nodes that have not answered; `facts` what building showed."""

    id: int
    state: Literal["running", "done"]
    created_at: datetime
    findings: tuple[Found, ...]
    facts: dict[str, str]
    nodes: tuple[str, ...]
    waiting: tuple[str, ...]

    @property
    def blocked(self) -> bool:
        """Whether anything found would make the job fail."""
        return any(found.blocks for found in self.findings)


@transaction.atomic
def begin(*, spec: JobSpec, cluster: Cluster, findings: Iterable[Finding], by: User, now: datetime) -> Preflight:
    """Ask the nodes that the job would get now. Its program is stored already."""
    check_limit(by, now=now)
    cluster = Cluster.objects.select_for_update().get(pk=cluster.pk)
    placed = probing.place(spec, cluster_view(cluster, now=now))
    if isinstance(placed, str):
        remedy = "Check again when there is room, or start the job: it waits"
        findings = [*findings, Finding("the nodes were not asked", placed, remedy, blocks=False)]
        placed = ()
    listening = [each for each in placed if each.tf_config is not None and each.role is not Role.EVALUATOR]
    doors = [Door(label=each.label, node=each.node_name, host=each.host, port=each.port) for each in listening]
    row = probing.begin(
        spec,
        cluster,
        now=now,
        owner=by,
        findings=[asdict(finding) for finding in findings],
        doors=[[door.host, door.port] for door in doors],
        answer_by=now + ANSWER_WITHIN,
        build_by=now + BUILD_WITHIN,
    )
    place = cluster.checkpoint_place if keeps_checkpoints(spec) else ""
    ask = partial(probing.ask, row=row, spec=spec, now=now, key=secrets.token_hex(16), checkpoints=place)
    for node in Node.objects.filter(pk__in={replica.node_id for replica in placed}).order_by("name"):
        here = [replica for replica in placed if replica.node_id == node.pk]
        ask(
            node,
            own=[door for door in doors if door.node == node.name],
            others=[door for door in doors if door.node != node.name],
            devices=[index for replica in here for index in replica.devices],
            device_kind=next((replica.device_kind for replica in here if replica.devices), DeviceKind.CPU),
            builds=placed[0] in here,
        )
    return row


def check_limit(by: User, *, now: datetime) -> None:
    """`Conflict` where as many trials as one may have are running for this person."""
    running = ProbedNode.objects.awaited(now).filter(preflight__owner=by, preflight__job=None)
    if running.values("preflight").distinct().count() >= AT_ONCE_MAX:
        raise Conflict(f"{AT_ONCE_MAX} of your checks are running: wait for one of them to end.")


def answers_to(*, preflight_id: int, by: User, now: datetime) -> Answers:
    """How it stands; `NotFound` unless it is one's own (an administrator sees all)."""
    row = _seen_by(by, preflight_id)
    asked = _nodes_of(row)
    awaited = set(row.asked.awaited(now))
    silent = [_silent(each) for each in asked if each.answered_at is None and each not in awaited]
    return Answers(
        id=row.pk,
        state="running" if awaited else "done",
        created_at=row.created_at,
        findings=(*(Found(**each) for each in row.findings), *_found_on(asked), *silent),
        facts={name: text for each in asked for name, text in each.facts.items()},
        nodes=tuple(each.name for each in asked),
        waiting=tuple(each.name for each in asked if each in awaited),
    )


@transaction.atomic
def cancel(*, preflight_id: int, by: User, now: datetime) -> None:
    """End a check that nobody waits for, and forget it; `NotFound` as `answers_to`, `Conflict` where a job waits."""
    row = _seen_by(by, preflight_id)
    if row.job_id is not None:
        raise Conflict(f"j-{row.job_id} waits for this check: stop the job, and it ends.")
    if row.ended_at is None:
        probing.withdraw(row, now=now)
    row.delete()


def warnings_about(spec: JobSpec, *, by: User, now: datetime) -> list[str]:
    """What the latest check of exactly this job has found, as sentences for its history."""
    rows = Preflight.objects.filter(owner=by, job=None, created_at__gt=now - RECENT, code_id=spec.code.sha256)
    row = next((row for row in rows.order_by("-pk")[:10] if row.spec == plain(spec)), None)
    return [f"{found.what}: {found.why}" for found in _found_on(_nodes_of(row))] if row else []


def _seen_by(user: User, preflight_id: int) -> Preflight:
    row = Preflight.objects.filter(pk=preflight_id).first()
    if row is None or not user.may_act_for(row.owner_id):
        raise NotFound("There is no such check. Checks are kept for a day.")
    return row


def _silent(asked: ProbedNode) -> Found:
    has_question = asked.command is not None and asked.command.acked_at is not None and not asked.command.refused
    if asked.is_away:
        why, remedy = "its agent does not report", "Check that the machine and its agent run"
    elif has_question:
        why, remedy = "it accepted the check but did not answer in time", "Check again, and read its agent's log"
    else:
        why = "its agent does not accept this command: it is too old"
        remedy = "Update the agent and restart it, or start the job without this check"
    return Found(f"{asked.name} was not checked", why, remedy, blocks=has_question or asked.is_away, node=asked.name)


def _nodes_of(row: Preflight) -> list[ProbedNode]:
    """In an order that no database changes."""
    return sorted(row.asked.select_related("node", "command"), key=lambda asked: asked.name)


def _found_on(nodes: list[ProbedNode]) -> Iterator[Found]:
    """What they answered. A port that its own node could not open explains why others did not reach it."""
    taken = {label for each in nodes for label in each.taken}
    for each in nodes:
        unreached = [finding for label, finding in each.unreached.items() if label not in taken]
        yield from (Found(node=each.name, **finding) for finding in [*each.findings, *unreached])
