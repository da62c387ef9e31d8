"""Preflight on the nodes: each node that a job would get is asked to look whether it could run, and nothing is started.

Begun from the form or by REST (`begin`); ingest hands the nodes' answers to `on_probed`; whoever asks reads `look`,
which also ends what nobody answers. While its ports are tried, nothing is placed on them. What it warned of is written
into the history of the job that is then submitted (`warnings_about`).

`Preflight.nodes` by node id: `name`, `command` (its id), `builds`, and once answered `report` (a plain `Probed`).
"""

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal

import msgspec
from django.db import transaction

from orchestrator import enqueue
from orchestrator.domain.placement import planning
from orchestrator.domain.placement.planning import ClusterView, NotNow, Placed, PlannedReplica
from orchestrator.domain.placement.rehearsal import Verdict, fingerprint
from orchestrator.models import Cluster, Command, Node, Preflight, User
from orchestrator.queries.errors import NotFound
from orchestrator.services import outbox
from orchestrator.services.errors import Conflict, Forbidden, Invalid
from orchestrator.services.jobs import submission
from orchestrator.services.jobs.cluster_snapshot import cluster_view
from orchestrator.services.programs import programs
from worker_agent.protocol.codec import plain
from worker_agent.protocol.commands import Door, Probe, Withdraw
from worker_agent.protocol.findings import Finding
from worker_agent.protocol.job.job_spec import JobSpec, keeps_checkpoints
from worker_agent.protocol.reports import Probed
from worker_agent.protocol.states import DeviceKind, Role

WINDOW_S = 10.0
BUILD_LIMIT_S = 120.0
# Until a node's answer has come, with time for commands and reports on their way, and for a disk that hangs.
ANSWER_WITHIN = timedelta(seconds=40)
BUILT_WITHIN = ANSWER_WITHIN + timedelta(seconds=BUILD_LIMIT_S + 20)
KEPT_FOR = timedelta(days=1)
RECENT = timedelta(hours=1)
AT_ONCE_MAX = 3
FINDINGS_MAX = 50
WORDS_MAX = 1000
ALIVE_WITHIN = timedelta(seconds=15)

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Found:
    """One finding; `node` is "" for what the control plane found."""

    node: str
    severity: Severity
    what: str
    why: str
    remedy: str


@dataclass(frozen=True)
class View:
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
        return any(found.severity == "error" for found in self.findings)


def begin(*, request: object, by: User, now: datetime) -> Preflight:
    """Ask the nodes that the request's job would get now; `Invalid` names every wrong field."""
    if not by.may_run_jobs:
        raise Forbidden("Your role lets you look at jobs, not check or create them.")
    forget_old(now=now)
    running = Preflight.objects.filter(owner=by, job=None, ended_at=None, created_at__gt=now - BUILT_WITHIN)
    if running.count() >= AT_ONCE_MAX:
        raise Conflict(f"{AT_ONCE_MAX} of your checks are running: wait for one of them to end.")
    checked = submission.check(request, by=by)
    if checked.errors or checked.spec is None or checked.program is None or checked.cluster is None:
        raise Invalid(checked.errors)
    programs.keep(checked.program)
    with transaction.atomic():
        cluster = Cluster.objects.select_for_update().get(pk=checked.cluster.pk)
        view = cluster_view(cluster, now=now)
        placed = place(checked.spec, view)
        findings = [*checked.findings]
        if isinstance(placed, str):
            remedy = "Check again when there is room, or start the job: it waits"
            findings.append(Finding("the nodes were not asked", placed, remedy, blocks=False))
            placed = ()
        doors = [replica for replica in placed if replica.tf_config is not None and replica.role is not Role.EVALUATOR]
        row = Preflight.objects.create(
            owner=by,
            cluster=cluster,
            code_id=checked.program.ref.sha256,
            spec=plain(checked.spec),
            fingerprint=fingerprint(checked.spec, cluster.environment),
            findings=[asdict(finding) for finding in findings],
            doors=[[door.host, door.port] for door in doors],
            ports_until=now + ANSWER_WITHIN,
            created_at=now,
            ended_at=None if placed else now,
        )
        _ask(row, cluster, checked.spec, placed, doors, now)
    return row


def on_probed(*, node: Node, report: Probed, now: datetime) -> None:
    """A node has answered; only what it was asked, and only once."""
    row = Preflight.objects.select_for_update().filter(pk=report.preflight_id, ended_at=None).first()
    asked = row.nodes.get(node.pk) if row else None
    if row is None or asked is None or "report" in asked:
        return
    asked["report"] = _tidy(plain(report))
    row.save(update_fields=["nodes"])
    if all("report" in each for each in row.nodes.values()):
        end(row, now=now)


def look(*, preflight_id: int, by: User, now: datetime) -> View:
    """How it stands; `NotFound` unless it is one's own (an administrator sees all)."""
    with transaction.atomic():
        row = _seen_by(by, preflight_id)
        acked = acknowledged(row)
        unanswered = [(pk, asked) for pk, asked in _by_name(row) if "report" not in asked]
        late = [(pk, asked) for pk, asked in unanswered if row.ended_at or now > _due(row, asked, acked)]
        if row.ended_at is None and len(late) == len(unanswered):
            end(row, now=now)
    silent = [_silent(asked["name"], pk, acked=asked["command"] in acked, now=now) for pk, asked in late]
    reports = [asked["report"] for _, asked in _by_name(row) if "report" in asked]
    return View(
        id=row.pk,
        state="done" if row.ended_at else "running",
        created_at=row.created_at,
        findings=(*(_found("", each) for each in row.findings), *_of_the_nodes(row), *silent),
        facts={name: text for report in reports for name, text in report["facts"].items()},
        nodes=tuple(asked["name"] for _, asked in _by_name(row)),
        waiting=tuple(asked["name"] for pk, asked in unanswered if (pk, asked) not in late),
    )


@transaction.atomic
def cancel(*, preflight_id: int, by: User, now: datetime) -> None:
    """End a check that nobody waits for, and forget it; `NotFound` as `look`, `Conflict` where a job waits for it."""
    row = _seen_by(by, preflight_id)
    if row.job_id is not None:
        raise Conflict(f"j-{row.job_id} waits for this check: stop the job, and it ends.")
    if row.ended_at is None:
        withdraw(row, now=now)
    row.delete()


def warnings_about(spec: JobSpec, *, by: User, now: datetime) -> list[str]:
    """What the latest check of exactly this job has found, as sentences for its history."""
    rows = Preflight.objects.filter(owner=by, job=None, created_at__gt=now - RECENT, code_id=spec.code.sha256)
    row = next((row for row in rows.order_by("-pk")[:10] if row.spec == plain(spec)), None)
    return [f"{found.what}: {found.why}" for found in _of_the_nodes(row)] if row else []


def _seen_by(user: User, preflight_id: int) -> Preflight:
    """The check, its row locked."""
    row = Preflight.objects.select_for_update().filter(pk=preflight_id).first()
    if row is None or (row.owner_id != user.pk and not user.may_administer):
        raise NotFound("There is no such check, or it has been forgotten: they are kept for a day.")
    return row


def place(spec: JobSpec, view: ClusterView) -> tuple[PlannedReplica, ...] | str:
    """Where it would run: now, else once the devices are free that others hold. Or why nowhere."""
    outcome = planning.place(spec, view)
    if isinstance(outcome, NotNow):
        empty = replace(view, nodes=tuple(replace(node, held=frozenset()) for node in view.nodes))
        outcome = planning.place(spec, empty)
    if isinstance(outcome, Placed):
        return outcome.replicas
    return outcome.waiting_for if isinstance(outcome, NotNow) else outcome.message


def _ask(
    row: Preflight,
    cluster: Cluster,
    spec: JobSpec,
    placed: tuple[PlannedReplica, ...],
    doors: list[PlannedReplica],
    now: datetime,
) -> None:
    """A `Probe` for each node; the leader's builds the program."""
    writes = keeps_checkpoints(spec)
    leader = leader_of(placed) if placed else None
    common = msgspec.structs.replace(
        question(row, cluster, spec), key=secrets.token_hex(16), checkpoints=cluster.checkpoint_place if writes else ""
    )
    for node in Node.objects.filter(pk__in={replica.node_id for replica in placed}).order_by("name"):
        here = [replica for replica in placed if replica.node_id == node.pk]
        probe = msgspec.structs.replace(
            common,
            own=[_door(door) for door in doors if door.node_id == node.pk],
            others=[_door(door) for door in doors if door.node_id != node.pk],
            devices=[index for replica in here for index in replica.devices],
            device_kind=next((replica.device_kind for replica in here if replica.devices), DeviceKind.CPU),
            builds=leader in here,
        )
        post(row, node, probe, now=now)


def leader_of(placed: tuple[PlannedReplica, ...]) -> PlannedReplica:
    """Whose node builds the program: the chief's, else the first one's."""
    return next((each for each in placed if each.role is Role.CHIEF), placed[0])


def question(row: Preflight, cluster: Cluster, spec: JobSpec) -> Probe:
    """What is the same for every node that is asked; nothing is looked at yet."""
    return Probe(
        command_id=0,
        preflight_id=row.pk,
        key="",
        node="",
        own=[],
        others=[],
        devices=[],
        device_kind=DeviceKind.CPU,
        spec=spec,
        env={**{str(name): str(value) for name, value in cluster.environment.items()}, **spec.env},
        window_s=WINDOW_S,
        build_limit_s=BUILD_LIMIT_S,
    )


def post(row: Preflight, node: Node, probe: Probe, *, now: datetime) -> None:
    """Ask one node, and note that it was asked."""
    build = partial(_numbered, msgspec.structs.replace(probe, node=node.name))
    command = outbox.post(node=node, replica=None, now=now, build=build)
    row.nodes[node.pk] = {"name": node.name, "command": command.pk, "builds": probe.builds}
    row.save(update_fields=["nodes"])


def _door(replica: PlannedReplica) -> Door:
    return Door(label=replica.label, node=replica.node_name, host=replica.host, port=replica.port)


def _numbered(probe: Probe, command_id: int) -> Probe:
    return msgspec.structs.replace(probe, command_id=command_id)


def _tidy(value: Any) -> Any:
    """What a node says, no longer than can be read, and as every database takes it."""
    if isinstance(value, str):
        return value.replace("\0", "")[:WORDS_MAX]
    if isinstance(value, dict):
        return {_tidy(str(name)): _tidy(item) for name, item in list(value.items())[:FINDINGS_MAX]}
    return [_tidy(item) for item in value[:FINDINGS_MAX]] if isinstance(value, list) else value


def withdraw(row: Preflight, *, now: datetime) -> None:
    """Nobody waits for it any more: end it, and what its nodes are building for it."""
    unanswered = [pk for pk, asked in row.nodes.items() if "report" not in asked]
    for node in Node.objects.filter(pk__in=unanswered):
        outbox.post(node=node, replica=None, now=now, build=partial(_withdrawal, preflight_id=row.pk))
    end(row, now=now)


def _withdrawal(command_id: int, *, preflight_id: int) -> Withdraw:
    return Withdraw(command_id=command_id, preflight_id=preflight_id)


def end(row: Preflight, *, now: datetime) -> None:
    """It has ended, and its ports may be used."""
    row.ended_at = now
    row.ports_until = now
    row.verdict = _verdict(row)
    row.save(update_fields=["ended_at", "ports_until", "verdict"])
    enqueue.dispatch_waiting()


def _verdict(row: Preflight) -> str:
    built = [asked.get("report") for asked in row.nodes.values() if asked["builds"]]
    if not built:
        return ""
    if not built[0]:
        return Verdict.SILENT
    if any(finding.get("certain") for finding in built[0]["findings"]):
        return Verdict.REFUSED
    return Verdict.BUILT if built[0]["tried"] else Verdict.UNTRIED


def forget_old(*, now: datetime) -> None:
    """Drop what nobody asks about any more."""
    Preflight.objects.filter(created_at__lt=now - KEPT_FOR).delete()


def acknowledged(row: Preflight) -> set[int]:
    """The commands that their agents have taken."""
    commands = [asked["command"] for asked in row.nodes.values()]
    taken = Command.objects.filter(pk__in=commands, refused="").exclude(acked_at=None)
    return set(taken.values_list("pk", flat=True))


def _due(row: Preflight, asked: Mapping[str, Any], acked: set[int]) -> datetime:
    builds = asked["builds"] and asked["command"] in acked
    return row.created_at + (BUILT_WITHIN if builds else ANSWER_WITHIN)


def _silent(name: str, node_id: str, *, acked: bool, now: datetime) -> Found:
    node = Node.objects.filter(pk=node_id).first()
    alive = node is not None and node.last_seen_at is not None and now - node.last_seen_at < ALIVE_WITHIN
    if acked:
        why, remedy = "it took the question, and no answer came in time", "Check again, and read its agent's log"
    elif alive:
        why = "its agent is there and does not take this command: it is too old for it"
        remedy = "Update the agent and restart it, or start the job without this check"
    else:
        why, remedy = "its agent is not heard of", "See whether the machine runs and its agent is up"
    return Found(name, "error" if acked or not alive else "warning", f"{name} was not checked", why, remedy)


def _by_name(row: Preflight) -> list[tuple[str, dict[str, Any]]]:
    """Its nodes, in an order that no database changes."""
    return sorted(row.nodes.items(), key=lambda item: item[1]["name"])


def _of_the_nodes(row: Preflight) -> Iterator[Found]:
    """What they answered. A port that its own node could not open explains why others did not reach it."""
    reports = [(asked["name"], asked["report"]) for _, asked in _by_name(row) if "report" in asked]
    taken = {label for _, report in reports for label in report["taken"]}
    for name, report in reports:
        for each in report["findings"]:
            yield _found(name, each)
        for label, each in report["unreached"].items():
            if label not in taken:
                yield _found(name, each)


def _found(node: str, finding: Mapping[str, Any]) -> Found:
    severity: Severity = "error" if finding["blocks"] else "warning"
    return Found(node, severity, finding["what"], finding["why"], finding["remedy"])
