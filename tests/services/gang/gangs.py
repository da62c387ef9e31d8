"""Steps that many tests of the services share: a lab with nodes, a launched gang, what its nodes say."""

from datetime import datetime, timedelta
from typing import Any

from orchestrator.models import Checkpoint, Cluster, Command, Job, Node, Replica
from orchestrator.services.gang import gang
from orchestrator.services.jobs import dispatch
from tests.factories import make_cluster, make_job, make_node
from worker_agent.protocol.ending import Ending, digest_of
from worker_agent.protocol.records import Exit
from worker_agent.protocol.states import Cause, Strategy


def make_lab(nodes: int = 2, *, slots: int = 2, **columns: object) -> Cluster:
    """A cluster with nodes `node-1`, `node-2`, …"""
    cluster = make_cluster(**columns)
    for number in range(1, nodes + 1):
        make_node(cluster, f"node-{number}", slots=slots)
    return cluster


def make_gang_job(
    cluster: Cluster, workers: int = 2, strategy: Strategy = Strategy.MULTI_WORKER_MIRRORED, **spec
) -> Job:
    """A submitted job of several workers."""
    return make_job(cluster=cluster, spec={"strategy": strategy, "workers": workers, **spec})


def launch(job: Job, now: datetime) -> list[Replica]:
    """Dispatch it; its replicas as they are then."""
    assert dispatch.dispatch_job(job_id=job.pk, now=now)
    job.refresh_from_db()
    return list(job.replicas.filter(attempt=job.attempt))


def acknowledge(replica: Replica, now: datetime, *, kind: str = "launch", refused: str = "") -> None:
    """The node answers the latest command of that kind."""
    row = Command.objects.filter(replica=replica, kind=kind).order_by("-pk").first()
    assert row is not None
    gang.on_ack(node=row.node, command_id=row.pk, refused=refused, now=now)


def run(job: Job, now: datetime) -> list[Replica]:
    """Launch it and let every process train."""
    replicas = launch(job, now)
    for number, replica in enumerate(replicas, start=1):
        acknowledge(replica, now)
        gang.on_started(replica=replica, pid=1000 + number, warm=False, now=now)
        gang.on_phase(replica=replica, phase="serving" if replica.role == "ps" else "training", now=now)
    return refreshed(job, replicas)


def end(replica: Replica, cause: Cause, now: datetime, *, message: str = "", **known: Any) -> None:
    """The node says that the process group is gone, and what is `known` of its ending."""
    ending = Ending(cause=cause, digest=digest_of(message), **known)
    status = {"code": ending.code, "signal": ending.signal}
    record = Exit(at=now.timestamp(), cause=cause, message=message, final={}, ending=ending, **status)
    gang.on_exit(replica=replica, exit_record=record, now=now)


def lose_peer(replica: Replica, now: datetime) -> None:
    """The node says that TensorFlow raised because another process was gone."""
    said = "A peer went away: UnavailableError: Socket closed"
    end(replica, Cause.EXCEPTION, now, code=1, message=said, lost_peer=True)


def keep(job: Job, step: int, *, epoch: int = 1, place: str = "/shared/j", usable: bool = True) -> Checkpoint:
    """A complete checkpoint; `place` is a folder that the nodes share, "" Trainyard's own store."""
    name = f"step-{step:010d}-a{job.attempt}"
    columns = {"step": step, "epoch": epoch, "size_bytes": 1, "sha256": "0" * 64, "place": place, "usable": usable}
    return Checkpoint.objects.create(job=job, attempt=job.attempt, name=name, **columns)


def refreshed(job: Job, replicas: list[Replica]) -> list[Replica]:
    """The rows as they are now."""
    job.refresh_from_db()
    for replica in replicas:
        replica.refresh_from_db()
    return replicas


def hear(node: Node, now: datetime, *replicas: Replica) -> None:
    """A heartbeat of the node that lists these replicas as running."""
    holding = [
        {"replica_id": replica.pk, "attempt": replica.attempt, "status": "running", "pid": 1} for replica in replicas
    ]
    Node.objects.filter(pk=node.pk).update(last_seen_at=now, holding=holding)


def later(now: datetime, seconds: float) -> datetime:
    """So many seconds on."""
    return now + timedelta(seconds=seconds)
