"""Nodes that say nothing: how long they have been silent, and what becomes of the replicas there.

A replica on a lost node is given up once its lease must have run out: its shim then ends it within `LEASE_GRACE_S`. It
is lost from then on, and goes on to hold its devices and ports, which keeps its job from being launched again
(`fencing.py`), until that grace and a margin are over too, or its node is back and does not know it any more. The
sweep's step `lose_silent_nodes` calls this. How long something has lasted is known by the sweep's own monotonic clock,
never by the wall's.
"""

from collections.abc import Mapping
from datetime import datetime

from django.db.models import F

from orchestrator.models import Node, Replica
from orchestrator.services import outbox
from orchestrator.services.gang import gang
from orchestrator.services.gang.watch import Watch
from orchestrator.services.transitions import announce_replicas, record
from worker_agent.protocol.plan import LEASE_GRACE_S
from worker_agent.protocol.states import JobStatus, NodeState, ReplicaStatus

# Of a node's last touch only its last heartbeat is known here, and a shim looks once a second.
MARGIN_S = 5.0


NODES, LOST = Watch(), Watch()


def silences(*, listening_since: datetime | None) -> dict[str, float]:
    """For how many seconds nothing has been heard of each node while somebody listened, as far as this process saw."""
    if listening_since is None:
        return NODES.observe({})
    seen = Node.objects.values_list("pk", "last_seen_at")
    return NODES.observe({node_id: (seen_at, listening_since) for node_id, seen_at in seen})


def give_up(silences: Mapping[str, float], *, now: datetime) -> None:
    """Replicas on lost nodes whose lease has run out; at once those that nobody would launch again."""
    on_lost_nodes = Replica.objects.live().filter(node__state=NodeState.LOST.value)
    for replica in on_lost_nodes.select_related("node", "job"):
        silent_s = silences.get(str(replica.node_id), 0.0)
        if replica.lease_s and silent_s <= replica.lease_s and replica.job.status != JobStatus.STOPPING:
            continue
        reason = f"Node {replica.node_name} is lost. {replica.node.state_reason if replica.node else ''}".strip()
        gang.on_lost(replica=replica, reason=reason, held=bool(replica.lease_s), now=now)


def release(silences: Mapping[str, float]) -> None:
    """What replicas that were given up hold is free once they have ended for sure."""
    lost = Replica.objects.filter(held=True, status=ReplicaStatus.LOST.value).select_related("node")
    # In a gang that goes on, `replacing.py` holds the place of one that comes back.
    rows = list(lost.exclude(job__status=JobStatus.RUNNING.value, attempt=F("job__attempt")))
    lasting = LOST.observe({str(replica.pk): _seen(replica) for replica in rows})
    for replica in rows:
        lasting_s, patience_s = lasting[str(replica.pk)], MARGIN_S
        match _seen(replica):
            case "away":
                lasting_s = silences.get(str(replica.node_id), lasting_s if replica.node is None else 0.0)
                patience_s = replica.lease_s + LEASE_GRACE_S + MARGIN_S
            case "running":
                patience_s = outbox.STUCK_AFTER.total_seconds()
        if lasting_s > patience_s:
            Replica.objects.filter(pk=replica.pk).update(held=False)
            announce_replicas([replica])


def tell_jobs(node: Node) -> None:
    """The node is lost: jobs that run there are told what becomes of them."""
    replicas = Replica.objects.live().filter(node=node, lease_s__gt=0).select_related("job")
    for job, lease_s in {replica.job: replica.lease_s for replica in replicas}.items():
        text = f"{node.name} is lost. Its processes are given up when it has been silent for {lease_s:g} s."
        record(kind="node_silent", text=text, job=job)


def _seen(replica: Replica) -> str:
    """What its node says of a replica that was given up: "running", "gone", or nothing at all ("away")."""
    node = replica.node
    if node is None or node.state == NodeState.LOST:
        return "away"
    listed = {held.replica_id for held in node.held_replicas if held.status is not ReplicaStatus.EXITED}
    return "running" if replica.pk in listed else "gone"
