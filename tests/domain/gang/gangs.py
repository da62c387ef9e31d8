"""Plain values for the tests of the domain: nodes, clusters, specs, replicas."""

from datetime import UTC, datetime, timedelta

from orchestrator.domain.gang.decisions import GangFacts
from orchestrator.domain.gang.reasons import ReplicaFacts
from orchestrator.domain.placement.planning import ClusterView, NodeView
from worker_agent.protocol.ending import Ending
from worker_agent.protocol.job.job_spec import CodeRef, JobSpec
from worker_agent.protocol.states import Cause, DeviceKind, JobStatus, Kind, NodeState, ReplicaStatus, Role, Strategy

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def node(name, slots=2, *, held=(), state=NodeState.READY, kind=DeviceKind.CPU, address=None, **more):
    devices = tuple((index, kind) for index in range(slots))
    return NodeView(name, name, address or f"10.0.0.{name[-1]}", state, devices, frozenset(held), **more)


def cluster(*nodes, ports=(20000, 20999), taken=()):
    return ClusterView(nodes, *ports, frozenset(taken))


def spec(strategy=Strategy.MULTI_WORKER_MIRRORED, **fields):
    return JobSpec(name="t", cluster="lab", code=CodeRef("0" * 64, "r.py"), strategy=strategy, **fields)


def replica(index=0, status=ReplicaStatus.RUNNING, cause=None, *, role=Role.WORKER, ago_s=0.0, **fields):
    """One process; what is no field of `ReplicaFacts` is one of its ending."""
    ended = NOW - timedelta(seconds=ago_s) if cause else None
    status = ReplicaStatus.EXITED if cause and status is ReplicaStatus.RUNNING else status
    own = {name: fields.pop(name) for name in ("message", "node_takes", "is_leaving") if name in fields}
    ending = Ending(cause=cause, **fields) if cause else None
    return ReplicaFacts(role, index, f"node-{index + 1}", status, ending, ended_at=ended, **own)


def gang(
    *replicas,
    status=JobStatus.RUNNING,
    strategy=Strategy.MULTI_WORKER_MIRRORED,
    attempt=1,
    cause=None,
    reason="",
    kind=Kind.RECIPE,
    **fields,
):
    return GangFacts(strategy, status, attempt, cause, reason, replicas, kind, **fields)


def ended(index=0, cause=Cause.COMPLETED, **fields):
    return replica(index, cause=cause, **fields)
