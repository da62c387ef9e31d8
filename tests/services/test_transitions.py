"""The door: every pair of statuses, the guard against a second mover, and what is written and announced."""

from itertools import product

import pytest

from orchestrator import live
from orchestrator.domain.lifecycle import (
    AGENT_AWAY,
    JOB_TRANSITIONS,
    NODE_TRANSITIONS,
    REPLICA_TRANSITIONS,
    TERMINAL_JOB,
)
from orchestrator.models import Event, Job, Node, Replica
from orchestrator.services.transitions import IllegalTransition, StaleTransition, move_job, move_node, move_replica
from tests.factories import make_job, make_node, make_replica
from worker_agent.protocol.states import JobStatus, NodeState, ReplicaStatus


@pytest.mark.parametrize(("was", "to"), list(product(JobStatus, JobStatus)))
def test_every_pair_of_job_statuses(was, to, now):
    job = make_job(status=was)
    if to in JOB_TRANSITIONS[was]:
        move_job(job=job, to=to, now=now, text="because")
        assert Job.objects.get(pk=job.pk).status == to
        assert (job.ended_at == now) is (to in TERMINAL_JOB)
        assert Event.objects.filter(job=job, kind=f"job_{to}", text="because").count() == 1
    else:
        with pytest.raises(IllegalTransition):
            move_job(job=job, to=to, now=now, text="because")
        assert Job.objects.get(pk=job.pk).status == was


@pytest.mark.parametrize(("was", "to"), list(product(ReplicaStatus, ReplicaStatus)))
def test_every_pair_of_replica_statuses(was, to, now):
    replica = make_replica(status=was)
    if to in REPLICA_TRANSITIONS[was]:
        move_replica(replica=replica, to=to, now=now)
        row = Replica.objects.get(pk=replica.pk)
        assert row.status == to
        assert row.held is (to not in (ReplicaStatus.EXITED, ReplicaStatus.LOST))
    else:
        with pytest.raises(IllegalTransition):
            move_replica(replica=replica, to=to, now=now)


@pytest.mark.parametrize(("was", "to"), list(product(NodeState, NodeState)))
def test_every_pair_of_node_states(was, to, now):
    node = make_node(state=was.value)
    if to in NODE_TRANSITIONS[was]:
        move_node(node=node, to=to, now=now, reason="because")
        row = Node.objects.get(pk=node.pk)
        assert (row.state, row.state_reason) == (to, "because")
        if was not in AGENT_AWAY:
            assert row.state_before_away == (was if to in AGENT_AWAY else "")
    else:
        with pytest.raises(IllegalTransition):
            move_node(node=node, to=to, now=now, reason="because")


def test_a_node_that_left_and_is_lost_remembers_where_it_stood_before_both(now):
    node = make_node(state=NodeState.CORDONED.value)
    for to in AGENT_AWAY:
        move_node(node=node, to=to, now=now, reason="because")
        assert node.state_before_away == NodeState.CORDONED


def test_the_second_mover_is_told(now):
    job = make_job(status=JobStatus.RUNNING)
    seen_by_another = Job.objects.get(pk=job.pk)
    move_job(job=job, to=JobStatus.STOPPING, now=now, text="first")
    with pytest.raises(StaleTransition):
        move_job(job=seen_by_another, to=JobStatus.SUCCEEDED, now=now, text="second")
    assert list(job.events.values_list("text", flat=True)) == ["first"]


def test_a_job_seen_in_an_earlier_attempt_is_not_moved(now):
    job = make_job(status=JobStatus.RUNNING)
    Job.objects.filter(pk=job.pk).update(attempt=2)
    with pytest.raises(StaleTransition):
        move_job(job=job, to=JobStatus.STOPPING, now=now, text="late")


def test_a_replica_that_moved_meanwhile_is_left_alone(now):
    replica = make_replica(status=ReplicaStatus.RUNNING)
    Replica.objects.filter(pk=replica.pk).update(status=ReplicaStatus.LOST.value)
    with pytest.raises(StaleTransition):
        move_replica(replica=replica, to=ReplicaStatus.EXITED, now=now)


def test_each_move_raises_the_revision_and_is_announced_after_commit(
    now, monkeypatch, django_capture_on_commit_callbacks
):
    told = []
    monkeypatch.setattr(live, "_send", lambda messages: told.append(messages))
    job = make_job(status=JobStatus.RUNNING)
    with django_capture_on_commit_callbacks(execute=True):
        move_job(job=job, to=JobStatus.STOPPING, now=now, text="because")
        assert told == []
    assert job.revision == 1
    kinds = {(group, event["kind"]) for message in told for group, events in message.items() for event in events}
    assert {(f"job.{job.pk}", "event"), (f"job.{job.pk}", "job"), ("jobs", "job")} <= kinds
