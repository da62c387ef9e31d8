"""Every pair of statuses that must or must never be legal."""

from itertools import product

import pytest

from orchestrator.domain.lifecycle import (
    JOB_TRANSITIONS,
    LIVE_JOB,
    NODE_TRANSITIONS,
    REPLICA_TRANSITIONS,
    TERMINAL_JOB,
    TERMINAL_REPLICA,
    final_status,
)
from worker_agent.protocol.states import Cause, JobStatus, NodeState, ReplicaStatus


@pytest.mark.parametrize(
    ("table", "states"),
    [(JOB_TRANSITIONS, JobStatus), (REPLICA_TRANSITIONS, ReplicaStatus), (NODE_TRANSITIONS, NodeState)],
)
def test_tables_are_total_and_nothing_moves_to_itself(table, states):
    assert set(table) == set(states)
    assert all(state not in onward for state, onward in table.items())


def test_terminal_statuses_are_the_ends():
    assert {JobStatus.STOPPED, JobStatus.SUCCEEDED, JobStatus.FAILED} == TERMINAL_JOB
    assert {ReplicaStatus.EXITED, ReplicaStatus.LOST} == TERMINAL_REPLICA
    assert set(JobStatus) == LIVE_JOB | TERMINAL_JOB


@pytest.mark.parametrize("status", sorted(LIVE_JOB))
def test_every_live_job_can_be_stopped_and_can_fail_unless_nothing_of_it_runs_for_a_pause(status):
    onward = JOB_TRANSITIONS[status]
    assert (JobStatus.FAILED in onward) == (status is not JobStatus.PAUSED)
    assert status is JobStatus.STOPPING or JobStatus.STOPPING in onward or JobStatus.STOPPED in onward


@pytest.mark.parametrize(("was", "to"), list(product(sorted(TERMINAL_JOB), JobStatus)))
def test_nothing_leaves_a_terminal_status(was, to):
    assert to not in JOB_TRANSITIONS[was]


def test_final_status_follows_from_the_cause():
    ends = {cause: final_status(cause) for cause in Cause}
    assert ends.pop(Cause.COMPLETED) is JobStatus.SUCCEEDED
    assert ends.pop(Cause.STOPPED) is JobStatus.STOPPED
    assert set(ends.values()) == {JobStatus.FAILED}
