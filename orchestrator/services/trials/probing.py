"""Asking nodes, and hearing their answers: what checks and rehearsals have in common.

`begin` makes the row, `ask` sends a node its question, ingest hands the answer to `on_probed`, `withdraw` ends what
nobody waits for any more. A node that does not answer ends nothing: its time is over (`ProbedNodes.awaited`).
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from orchestrator import enqueue
from orchestrator.domain.placement import planning
from orchestrator.domain.placement.planning import ClusterView, NotNow, Placed, PlannedReplica
from orchestrator.domain.placement.rehearsal import Verdict, fingerprint
from orchestrator.domain.words import storable
from orchestrator.models import Cluster, Node, Preflight, ProbedNode
from orchestrator.services import outbox
from worker_agent.protocol.codec import plain
from worker_agent.protocol.commands import Probe, WithdrawProbe
from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.protocol.reports import Probed
from worker_agent.protocol.states import Role

KEPT_FOR = timedelta(days=1)
FINDINGS_MAX = 50
WORDS_MAX = 1000


def begin(spec: JobSpec, cluster: Cluster, *, now: datetime, **columns: Any) -> Preflight:
    """A preflight that has asked nobody yet; those of yesterday are forgotten."""
    Preflight.objects.filter(created_at__lt=now - KEPT_FOR).delete()
    return Preflight.objects.create(
        cluster=cluster,
        code_id=spec.code.sha256,
        spec=plain(spec),
        fingerprint=fingerprint(spec, cluster.environment),
        created_at=now,
        **columns,
    )


def ask(node: Node, row: Preflight, spec: JobSpec, *, now: datetime, **asked: Any) -> None:
    """Send the node its question; `asked` are further fields of the `Probe`."""
    env = row.cluster.variables
    probe = Probe(command_id=outbox.NEW, preflight_id=row.pk, node=node.name, spec=spec, env=env, **asked)
    command = outbox.post(probe, node=node, now=now)
    row.asked.create(node=node, name=node.name, command=command, builds=asked["builds"])


def place(spec: JobSpec, view: ClusterView) -> tuple[PlannedReplica, ...] | str:
    """Where it would run: now, else once the devices are free that others hold. Or why nowhere. The first one's node
    builds the program: the chief's, if there is one."""
    outcome = planning.place(spec, view)
    if isinstance(outcome, NotNow):
        empty = replace(view, nodes=tuple(replace(node, held=frozenset()) for node in view.nodes))
        outcome = planning.place(spec, empty)
    if isinstance(outcome, Placed):
        return tuple(sorted(outcome.replicas, key=lambda replica: replica.role is not Role.CHIEF))
    return outcome.message


def on_probed(*, node: Node, report: Probed, now: datetime) -> None:
    """A node has answered; only what it was asked, and only once."""
    row = Preflight.objects.select_for_update().filter(pk=report.preflight_id, ended_at=None).first()
    asked = row.asked.filter(node=node, answered_at=None).first() if row else None
    if row is None or asked is None:
        return
    said = _tidy(plain(report))
    ProbedNode.objects.filter(pk=asked.pk).update(
        answered_at=now,
        verdict=_verdict(report) if asked.builds else "",
        **{name: said[name] for name in ("findings", "taken", "unreached", "facts")},
        model=plain(report.model),
    )
    if not row.asked.filter(answered_at=None).exists():
        _end(row, now)


def withdraw(row: Preflight, *, now: datetime) -> None:
    """Nobody waits for it any more: end it, and what its nodes are building for it."""
    for node in Node.objects.filter(probes__in=row.asked.filter(answered_at=None)):
        outbox.post(WithdrawProbe(command_id=outbox.NEW, preflight_id=row.pk), node=node, now=now)
    _end(row, now)


def _end(row: Preflight, now: datetime) -> None:
    """Its ports may be used, and jobs need not wait for it."""
    Preflight.objects.filter(pk=row.pk).update(ended_at=now)
    enqueue.ask_to_dispatch()


def _verdict(report: Probed) -> Verdict:
    if any(finding.certain for finding in report.findings):
        return Verdict.REFUSED
    return Verdict.BUILT if report.tried else Verdict.UNTRIED


def _tidy(value: Any) -> Any:
    """What a node says, no longer than can be read, and as every database takes it."""
    if isinstance(value, str):
        return storable(value)[:WORDS_MAX]
    if isinstance(value, dict):
        return {_tidy(str(name)): _tidy(item) for name, item in list(value.items())[:FINDINGS_MAX]}
    return [_tidy(item) for item in value[:FINDINGS_MAX]] if isinstance(value, list) else value
