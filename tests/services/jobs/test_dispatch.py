"""Placement applied: rows, commands, what waits, and races."""

import pytest

from orchestrator import live
from orchestrator.domain.placement.planning import place
from orchestrator.models import Cluster, Command, Job, Replica
from orchestrator.services.jobs import dispatch
from tests.factories import make_job, make_replica
from tests.services.gang.gangs import later, launch, make_gang_job, make_lab
from worker_agent.protocol.codec import decode_command
from worker_agent.protocol.commands import environment_of
from worker_agent.protocol.states import JobStatus, NodeState, ReplicaStatus, Strategy


def test_a_gang_is_launched_whole(now, gateway, django_capture_on_commit_callbacks):
    cluster = make_lab()
    Cluster.objects.filter(pk=cluster.pk).update(environment={"A": "cluster", "B": "cluster"})
    job = make_gang_job(cluster, env={"B": "job"}, learning_rate=0.1, lr_scaling="linear")
    with django_capture_on_commit_callbacks(execute=True):
        replicas = launch(job, now)
    assert (job.status, job.attempt) == (JobStatus.LAUNCHING, 1)
    assert [replica.status for replica in replicas] == [ReplicaStatus.ASSIGNED] * 2
    assert all(replica.held for replica in replicas)
    first, second = gateway.commands
    assert (first.replica_id, second.replica_id) == tuple(replica.pk for replica in replicas)
    assert first.tf_config == replicas[0].tf_config
    assert environment_of(first) == {"A": "cluster", "B": "job"}
    assert first.learning_rate == 0.2
    assert [parcel.node_id for parcel in gateway.parcels] == [replica.node_id for replica in replicas]
    assert Command.objects.filter(sent_at=now, times_sent=1, acked_at=None).count() == 2


def test_dispatching_twice_launches_once(now):
    job = make_gang_job(make_lab())
    assert dispatch.dispatch_job(job_id=job.pk, now=now) is True
    assert dispatch.dispatch_job(job_id=job.pk, now=now) is False
    assert Replica.objects.count() == 2


def test_a_job_that_does_not_fit_says_what_it_waits_for(now):
    cluster = make_lab(slots=1)
    holder = make_replica(make_job(cluster=cluster, status=JobStatus.RUNNING), node=cluster.nodes.get(name="node-1"))
    job = make_gang_job(cluster)
    assert dispatch.dispatch_waiting(now=now) == 0
    job.refresh_from_db()
    assert job.waiting_for == "needs 2 workers with 1 device each; 0 free on node-1, 1 on node-2"
    Replica.objects.filter(pk=holder.pk).update(held=False)
    assert dispatch.dispatch_waiting(now=now) == 1
    job.refresh_from_db()
    assert (job.status, job.waiting_for) == (JobStatus.LAUNCHING, "")


def test_each_new_reason_to_wait_is_told_as_a_revision(now, monkeypatch, django_capture_on_commit_callbacks):
    told = []
    monkeypatch.setattr(live, "_send", lambda messages: told.extend(messages.get("jobs", ())))
    cluster = make_lab()
    for node in cluster.nodes.all():
        make_replica(make_job(cluster=cluster, status=JobStatus.RUNNING), node=node, devices=[0, 1])
    job = make_gang_job(cluster)

    def reason_told() -> str:
        told.clear()
        with django_capture_on_commit_callbacks(execute=True):
            dispatch.dispatch_waiting(now=now)
            dispatch.dispatch_waiting(now=now)
        (event,) = told
        job.refresh_from_db()
        assert event["job"]["revision"] == job.revision
        return event["job"]["waiting_for"]

    printed = job.revision
    assert reason_told() == "needs 2 workers with 1 device each; 0 free on node-1, 0 on node-2"
    held = job.revision
    cluster.nodes.update(state=NodeState.LOST)
    assert "lost" in reason_told()
    assert printed < held < job.revision


def test_a_cluster_that_became_too_small_lets_the_job_wait(now):
    cluster = make_lab(nodes=1, slots=1)
    job = make_gang_job(cluster)
    assert dispatch.dispatch_job(job_id=job.pk, now=now) is False
    job.refresh_from_db()
    assert (job.status, job.waiting_for[:12]) == (JobStatus.SUBMITTED, "more workers")


def test_draining_and_cordoned_nodes_take_nothing(now):
    cluster = make_lab(nodes=2)
    cluster.nodes.filter(name="node-1").update(state=NodeState.DRAINING.value)
    job = make_gang_job(cluster, workers=1)
    assert [replica.node_name for replica in launch(job, now)] == ["node-2"]


def test_priority_first_then_age(now):
    cluster = make_lab(nodes=1, slots=1)
    old, urgent = make_job(cluster=cluster), make_job(cluster=cluster, priority=5)
    dispatch.dispatch_waiting(now=now)
    statuses = {pk: Job.objects.get(pk=pk).status for pk in (old.pk, urgent.pk)}
    assert statuses == {old.pk: JobStatus.SUBMITTED, urgent.pk: JobStatus.LAUNCHING}


def test_a_port_lost_to_another_process_is_planned_again(now, monkeypatch):
    cluster = make_lab(nodes=1)
    job = make_gang_job(cluster, workers=1)
    calls = []

    def racing(spec, view, **options):
        """The first plan is made on a view in which nobody holds a port; meanwhile somebody takes the one it picks."""
        outcome = place(spec, view, **options)
        if not calls:
            chosen = outcome.replicas[0]
            make_replica(make_job(), node=cluster.nodes.get(), port=chosen.port, host=chosen.host, devices=[])
        calls.append(outcome.replicas[0].port)
        return outcome

    holder_kept = []
    monkeypatch.setattr(dispatch.planning, "place", racing)
    assert dispatch.dispatch_job(job_id=job.pk, now=now) is True
    holder_kept += list(Replica.objects.filter(job=job))
    assert len(calls) == 2
    assert len(holder_kept) == 1


def test_later_launches_of_a_job_use_other_ports(now):
    cluster = make_lab(nodes=1)
    job = make_gang_job(cluster, workers=1)
    (first,) = launch(job, now)
    Replica.objects.filter(pk=first.pk).update(status=ReplicaStatus.EXITED.value, held=False)
    Job.objects.filter(pk=job.pk).update(status=JobStatus.SUBMITTED.value)
    (second,) = launch(job, later(now, 1))
    assert second.attempt == 2
    assert second.port != first.port


def test_a_broker_that_is_down_leaves_the_command_to_the_sweep(now, gateway, django_capture_on_commit_callbacks):
    gateway.broken = True
    with django_capture_on_commit_callbacks(execute=True):
        launch(make_gang_job(make_lab()), now)
    assert Command.objects.filter(sent_at=None).count() == 2


@pytest.mark.parametrize("strategy", [Strategy.ONE_DEVICE, Strategy.MIRRORED, Strategy.PARAMETER_SERVER])
def test_every_strategy_is_launched_with_its_roles(strategy, now):
    fields = {"workers": 2, "ps": 1} if strategy is Strategy.PARAMETER_SERVER else {"workers": 1}
    replicas = launch(make_gang_job(make_lab(), strategy=strategy, **fields), now)
    labels = [str(replica) for replica in replicas]
    assert labels == (["chief:0", "ps:0", "worker:0", "worker:1"] if fields.get("ps") else ["worker:0"])
    sent = [decode_command(bytes(row.body)) for row in Command.objects.order_by("pk")]
    assert {command.replica_id: command.tf_config for command in sent} == {row.pk: row.tf_config for row in replicas}
