"""The legal moves of jobs, replicas and nodes, and what a cause means for the job. Plain tables, no framework.

`services/transitions.py` is the only caller that turns a move into a database update.
"""

from worker_agent.protocol.causes import row_of
from worker_agent.protocol.states import Cause, JobStatus, NodeState, ReplicaStatus

JOB_TRANSITIONS: dict[JobStatus, frozenset[JobStatus]] = {
    JobStatus.SUBMITTED: frozenset({JobStatus.LAUNCHING, JobStatus.STOPPED, JobStatus.FAILED}),
    JobStatus.LAUNCHING: frozenset({JobStatus.RUNNING, JobStatus.RESTARTING, JobStatus.STOPPING, JobStatus.FAILED}),
    JobStatus.RUNNING: frozenset(
        {JobStatus.SUCCEEDED, JobStatus.RESTARTING, JobStatus.PAUSING, JobStatus.STOPPING, JobStatus.FAILED}
    ),
    JobStatus.RESTARTING: frozenset({JobStatus.SUBMITTED, JobStatus.STOPPING, JobStatus.FAILED}),
    JobStatus.PAUSING: frozenset({JobStatus.PAUSED, JobStatus.STOPPING, JobStatus.FAILED}),
    JobStatus.PAUSED: frozenset({JobStatus.SUBMITTED, JobStatus.STOPPED}),
    JobStatus.STOPPING: frozenset({JobStatus.STOPPED, JobStatus.SUCCEEDED, JobStatus.FAILED}),
    JobStatus.STOPPED: frozenset(),
    JobStatus.SUCCEEDED: frozenset(),
    JobStatus.FAILED: frozenset(),
}

REPLICA_TRANSITIONS: dict[ReplicaStatus, frozenset[ReplicaStatus]] = {
    ReplicaStatus.ASSIGNED: frozenset({ReplicaStatus.STARTING, ReplicaStatus.EXITED, ReplicaStatus.LOST}),
    ReplicaStatus.STARTING: frozenset({ReplicaStatus.RUNNING, ReplicaStatus.EXITED, ReplicaStatus.LOST}),
    ReplicaStatus.RUNNING: frozenset({ReplicaStatus.EXITED, ReplicaStatus.LOST}),
    ReplicaStatus.EXITED: frozenset(),
    ReplicaStatus.LOST: frozenset(),
}

# From these a node returns, when its agent is back, to where it was.
AGENT_AWAY = (NodeState.LEAVING, NodeState.LOST)
NODE_TRANSITIONS: dict[NodeState, frozenset[NodeState]] = {
    NodeState.READY: frozenset({NodeState.CORDONED, NodeState.DRAINING, *AGENT_AWAY}),
    NodeState.CORDONED: frozenset({NodeState.READY, NodeState.DRAINING, *AGENT_AWAY}),
    NodeState.DRAINING: frozenset({NodeState.READY, NodeState.CORDONED, *AGENT_AWAY}),
    NodeState.LEAVING: frozenset({NodeState.READY, NodeState.CORDONED, NodeState.DRAINING, NodeState.LOST}),
    NodeState.LOST: frozenset({NodeState.READY, NodeState.CORDONED, NodeState.DRAINING}),
}

TERMINAL_JOB = frozenset(status for status, onward in JOB_TRANSITIONS.items() if not onward)
TERMINAL_REPLICA = frozenset(status for status, onward in REPLICA_TRANSITIONS.items() if not onward)
LIVE_JOB = frozenset(JobStatus) - TERMINAL_JOB
LIVE_REPLICA = frozenset(ReplicaStatus) - TERMINAL_REPLICA


def final_status(cause: Cause) -> JobStatus:
    """The terminal status that a cause leads to, when the job is not restarted."""
    status = row_of(cause).status
    return status if status in TERMINAL_JOB else JobStatus.FAILED
