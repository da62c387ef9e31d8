"""What of an earlier launch may still run although its node is silent: reads for dispatch, uploads, records and the
sweep.

The shim ends a process whose node has been out of touch for longer than the lease that came with its launch
(`worker_agent/replica/lease.py`). A replica that was given up with its node holds its devices and ports until that must
have happened (`silence.py`); so long its job is not launched again, and after it what the old process said counts no
more.
"""

from django.db.models import F, QuerySet

from orchestrator.domain.gang.reasons import listed
from orchestrator.models import Job, Node, Replica
from orchestrator.queries.errors import NotFound
from orchestrator.services.errors import Conflict
from worker_agent.protocol.states import JobStatus, ReplicaStatus


def waits_for(job: Job) -> str:
    """What of the job's last launch may still run, in words; "" when nothing does."""
    return _words(list(_given_up().filter(job=job)))


def who_waits() -> dict[int, str]:
    """The same of every submitted job of which something may still run, by the job's id."""
    rows: dict[int, list[Replica]] = {}
    for replica in _given_up().filter(job__status=JobStatus.SUBMITTED.value):
        rows.setdefault(replica.job_id, []).append(replica)
    return {job_id: _words(given_up) for job_id, given_up in rows.items()}


def _given_up() -> QuerySet[Replica]:
    lost = Replica.objects.filter(held=True, status=ReplicaStatus.LOST.value, attempt=F("job__attempt"))
    return lost.order_by("role", "index")


def _words(rows: list[Replica]) -> str:
    if not rows:
        return ""
    names = listed([f"{replica.words} on {replica.node_name}" for replica in rows])
    have = "has" if len(rows) == 1 else "have"
    return (
        f"waits until {names} {have} ended for sure: a process ends itself when its node could not reach "
        f"the control plane for {rows[0].lease_s:g} s"
    )


def is_fenced(replica: Replica) -> bool:
    """Whether another one has been launched in the place of this lost replica: what it still says counts no more."""
    return replica.status == ReplicaStatus.LOST and (replica.superseded or replica.attempt < replica.job.attempt)


def sender(*, node: Node, replica_id: int, attempt: int) -> Replica:
    """The replica that sends a file from this node; raises `NotFound` (none of this node) and `Conflict` (what it says
    counts no more)."""
    replica = Replica.objects.select_related("job").filter(pk=replica_id, node=node).first()
    if replica is None:
        raise NotFound("This node runs no such replica.")
    if replica.attempt != attempt:
        raise Conflict(f"The replica belongs to attempt {replica.attempt}, not {attempt}.")
    if is_fenced(replica):
        raise Conflict("The replica was given up, and another one has been launched in its place.")
    return replica
