"""THE door to any status. Every move of a job, replica or node is one guarded UPDATE on the status (and attempt) that
the caller saw, an Event row, and an announcement on commit. Nothing else writes a `status` or a `state`.

Callers are the other services. Two of them may act at once: the one whose row has moved meanwhile gets
`StaleTransition`, reads again, or leaves it to the other.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from django.db.models import F

from orchestrator import live
from orchestrator.domain.lifecycle import (
    AGENT_AWAY,
    JOB_TRANSITIONS,
    NODE_TRANSITIONS,
    REPLICA_TRANSITIONS,
    TERMINAL_JOB,
    TERMINAL_REPLICA,
)
from orchestrator.domain.words import storable
from orchestrator.models import Event, Job, Node, Replica, User
from orchestrator.queries import jobs as job_queries
from worker_agent.protocol.states import JobStatus, NodeState, ReplicaStatus


class StaleTransition(Exception):
    """The row is no longer as the caller saw it: somebody else has moved it."""


class IllegalTransition(Exception):
    """The table in `domain/lifecycle.py` does not have this move: a fault of the caller."""


def move_job(
    *, job: Job, to: JobStatus, now: datetime, text: str, actor: User | None = None, **columns: object
) -> None:
    """Move a job (as read, in `job`) to `to` with further columns, which `job` then has."""
    if to in TERMINAL_JOB:
        columns["ended_at"] = now
    _move(job, JOB_TRANSITIONS, "status", to, columns | {"revision": F("revision") + 1})
    record(kind=f"job_{to.value}", text=text, job=job, actor=actor)
    announce_job(job)


def move_replica(
    *, replica: Replica, to: ReplicaStatus, now: datetime, text: str = "", kind: str = "", **columns: object
) -> None:
    """Move a replica. Ended replicas give their port and devices back at once, unless `held`. `text` "" writes no
    event; its `kind` is `replica_` and the status where not told otherwise."""
    if to in TERMINAL_REPLICA:
        columns = {"held": False, "ended_at": now} | columns
    _move(replica, REPLICA_TRANSITIONS, "status", to, columns)
    if text:
        record(kind=kind or f"replica_{to.value}", text=text, node=replica.node, replica=replica)
    announce_replicas([replica])


def move_node(
    *, node: Node, to: NodeState, now: datetime, reason: str, actor: User | None = None, text: str = ""
) -> None:
    """Move a node; `reason` is what the node's page shows, `text` the event (the reason when empty)."""
    stood = node.state_before_away if node.state in AGENT_AWAY else node.state
    before = stood if to in AGENT_AWAY else ""
    _move(node, NODE_TRANSITIONS, "state", to, {"state_reason": reason[:400], "state_before_away": before})
    record(kind=f"node_{to.value}", text=text or reason, node=node, actor=actor)
    announce_node(node)


def _move(
    row: Job | Replica | Node,
    legal: Mapping[Any, frozenset[Any]],
    column: str,
    to: JobStatus | ReplicaStatus | NodeState,
    further: Mapping[str, object],
) -> None:
    """The guarded UPDATE of a row that is as its caller saw it; the row then has what was changed."""
    was = type(to)(getattr(row, column))
    name = f"{row._meta.model_name} {row.pk}"
    if to not in legal[was]:
        raise IllegalTransition(f"{name}: {was.value} → {to.value}")
    seen: dict[str, object] = {column: was.value}
    if not isinstance(row, Node):
        seen["attempt"] = row.attempt
    changes = {column: to.value, **further}
    if type(row)._default_manager.filter(pk=row.pk, **seen).update(**changes) != 1:
        raise StaleTransition(f"{name} is no longer as it was seen: {seen}")
    computed = [name for name, value in changes.items() if hasattr(value, "resolve_expression")]
    for name in changes.keys() - computed:
        setattr(row, name, changes[name])
    if computed:
        row.refresh_from_db(fields=computed)


def record(
    *,
    kind: str,
    text: str,
    job: Job | None = None,
    node: Node | None = None,
    replica: Replica | None = None,
    actor: User | None = None,
) -> None:
    """Write one line of history and announce it: about a job in its present attempt, or about a replica of a job."""
    job = replica.job if replica else job
    attempt = replica.attempt if replica else (job.attempt or None) if job else None
    event = Event.objects.create(
        job=job, node=node, replica=replica, actor=actor, kind=kind, text=storable(text), attempt=attempt
    )
    written = live.event_written(event)
    if job is not None:
        live.announce(live.job_group(job.pk), [written])
    if node is not None:
        live.announce(live.node_group(node.pk), [written])


def announce_job(job: Job) -> None:
    """Tell the job's page and the list of jobs how the job stands."""
    event = live.job_changed(job_queries.summary(job))
    live.announce(live.job_group(job.pk), [event])
    live.announce(live.JOBS, [event])


def announce_advances(advances: Mapping[int, Callable[[], Mapping[str, object]]]) -> None:
    """Tell them how far jobs are (`queries.jobs.advance`, by job id): a small part of the same, for what comes many
    times a second."""
    events = {live.job_group(job_id): [partial(_advanced, advance)] for job_id, advance in advances.items()}
    live.announce_each(events | {live.JOBS: [event for each in events.values() for event in each]})


def _advanced(advance: Callable[[], Mapping[str, object]]) -> live.LiveEvent:
    return live.job_advanced(advance())


def announce_replicas(replicas: Sequence[Replica]) -> None:
    """Tell their job's page and the pages of their machines that rows of these replicas changed."""
    job_id = replicas[0].job_id
    Job.objects.filter(pk=job_id).update(revision=F("revision") + 1)
    live.announce(live.job_group(job_id), [live.replicas_changed()])
    live.announce(live.MACHINES, [live.replicas_changed()])
    for node_id in {replica.node_id for replica in replicas if replica.node_id is not None}:
        live.announce(live.node_group(node_id), [live.replicas_changed()])


def announce_node(node: Node) -> None:
    """Tell the node's page and the pages of machines how the node stands."""
    event = live.node_changed(node)
    live.announce(live.node_group(node.pk), [event])
    live.announce(live.MACHINES, [event])
