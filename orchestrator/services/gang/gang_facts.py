"""How a job's processes stand, and what it has been through, as the rules in `domain` see them."""

from django.db.models import QuerySet

from orchestrator.domain.gang import decisions
from orchestrator.domain.gang.reasons import ReplicaFacts
from orchestrator.domain.gang.restarts import AttemptEnd
from orchestrator.domain.lifecycle import TERMINAL_REPLICA
from orchestrator.models import Job, Replacement, Replica
from worker_agent.protocol.causes import Blame
from worker_agent.protocol.records import PhaseName
from worker_agent.protocol.states import Cause, NodeState, ReplicaStatus, Role


def replica_facts(replica: Replica) -> ReplicaFacts:
    """One process. Its node is looked at, so have it at hand."""
    node = replica.node
    takes = node is not None and node.state == NodeState.READY
    if node is not None and node.dirty:
        takes &= replica.port not in node.dirty_ports and not node.dirty_devices.intersection(replica.devices)
    return ReplicaFacts(
        role=Role(replica.role),
        index=replica.index,
        node_name=replica.node_name,
        status=ReplicaStatus(replica.status),
        ending=replica.typed_ending,
        message=replica.reason,
        ended_at=replica.ended_at,
        node_takes=takes,
        is_leaving=replica.phase == PhaseName.LEAVING and replica.status not in TERMINAL_REPLICA,
        replica_id=replica.pk,
        node_id=replica.node_id,
    )


def live(job: Job) -> list[Replica]:
    """The processes of the job's present attempt that have not ended, with their nodes."""
    rows = job.replicas.filter(attempt=job.attempt).exclude(status__in=TERMINAL_REPLICA)
    return list(rows.select_related("node"))


def present(job: Job) -> tuple[ReplicaFacts, ...]:
    """The processes of the job's present attempt, those aside that others have taken the place of."""
    rows = job.replicas.filter(attempt=job.attempt, superseded=False).select_related("node")
    return tuple(replica_facts(row) for row in rows)


def first_step(job: Job) -> int:
    """The step from which the job was last launched, or parts of its gang were."""
    last = launched_parts(job).filter(failed__attempt=job.attempt).last()
    if last is not None:
        return last.step_reached if last.step_resumed is None else last.step_resumed
    attempt = job.attempts.filter(number=job.attempt).first()
    return (attempt.resumed_step or 0) if attempt else 0


def earlier(job: Job) -> tuple[AttemptEnd, ...]:
    """The ends of the attempts before the present one, and of the processes that were replaced, in their order."""
    rows = list(job.replicas.select_related("node"))
    replacements = list(launched_parts(job))
    ends: list[AttemptEnd] = []
    for attempt in job.attempts.order_by("number"):
        first = attempt.resumed_step or 0
        for row in (each for each in replacements if each.failed.attempt == attempt.number):
            facts = replica_facts(row.failed)
            ends.append(decisions.end_of(facts, number=attempt.number, step=row.step_reached, first_step=first))
            first = row.step_reached if row.step_resumed is None else row.step_resumed
        if attempt.number < job.attempt and attempt.cause:
            last = [replica_facts(row) for row in rows if row.attempt == attempt.number and not row.superseded]
            root = decisions.root_cause(tuple(last))
            ends.append(
                AttemptEnd(
                    number=attempt.number,
                    cause=Cause(attempt.cause),
                    blame=Blame(attempt.blame),
                    step=attempt.step_reached or 0,
                    first_step=first,
                    digest=root.ending.digest if root and root.ending else "",
                )
            )
    return tuple(ends)


def launched_parts(job: Job) -> QuerySet[Replacement]:
    """The ledger's entries whose processes have been launched anew."""
    return job.replacements.exclude(replaced__superseded=False).select_related("failed__node")
