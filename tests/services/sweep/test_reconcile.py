"""The sweep: convergence when events were lost, and every giving-up explained."""

from datetime import timedelta

import pytest

from orchestrator.domain.gang.decisions import End
from orchestrator.models import Attempt, Command, Cursor, Event, Job, JoinToken, Node, Replica, ServiceBeat
from orchestrator.services.gang import gang, node_folders
from orchestrator.services.intake import reports
from orchestrator.services.sweep import disagreements, draining, reconcile
from orchestrator.services.transitions import StaleTransition
from tests.factories import make_cluster, make_inventory, make_job, make_replica
from tests.services.gang.gangs import acknowledge, end, hear, later, launch, make_gang_job, make_lab, refreshed, run
from worker_agent.protocol.codec import decode_command
from worker_agent.protocol.reports import Hello
from worker_agent.protocol.states import Cause, JobStatus, NodeState, ReplicaStatus


def listening(now, *, for_s=60.0):
    """Ingest has beaten just now, and without a break for so long."""
    alive_since = now - timedelta(seconds=for_s)
    ServiceBeat.objects.update_or_create(name="ingest", defaults={"alive_since": alive_since, "beat_at": now})


def kinds(node_or_replica, kind):
    return Command.objects.filter(node=node_or_replica, kind=kind)


def test_a_silent_node_is_lost_with_its_replicas_and_their_jobs_are_launched_again(now, settings):
    settings.LEASE_S = 0  # with one: test_silence.py
    job = make_gang_job(make_lab())
    first, second = run(job, now)
    moment = later(now, 11)
    hear(first.node, moment, first)
    Node.objects.filter(pk=second.node_id).update(last_seen_at=now)
    listening(moment)
    reconcile.sweep(now=moment)
    refreshed(job, [first, second])
    node = Node.objects.get(pk=second.node_id)
    assert (node.state, node.state_before_away) == (NodeState.LOST, NodeState.READY)
    assert node.state_reason == "No report since 12:00:00 UTC."
    assert (second.status, second.cause, second.held) == (ReplicaStatus.LOST, Cause.NODE_LOST, False)
    assert (job.status, job.cause) == (JobStatus.RESTARTING, Cause.NODE_LOST)
    assert job.reason.startswith("worker 1 on node-2 was lost: Node node-2 is lost. No report since 12:00:00 UTC.")
    assert Event.objects.filter(node=node, kind="node_lost").count() == 1
    assert Event.objects.filter(job=job, kind="replica_lost").count() == 1


@pytest.mark.parametrize("ingest", ["never", "dead", "just started"])
def test_silence_is_not_judged_while_nobody_listened(ingest, now, settings):
    node = make_lab(nodes=1).nodes.get()
    Node.objects.filter(pk=node.pk).update(last_seen_at=now - timedelta(seconds=100))
    if ingest == "dead":
        listening(now - timedelta(seconds=30))
    elif ingest == "just started":
        listening(now, for_s=settings.NODE_LOST_AFTER_S - 1)
    reconcile.sweep(now=now)
    assert Node.objects.get(pk=node.pk).state == NodeState.READY


def test_a_beat_after_a_break_begins_a_new_life(now):
    reconcile.beat(name="sweep", now=now)
    reconcile.beat(name="sweep", now=later(now, 5))
    assert ServiceBeat.objects.get(name="sweep").alive_since == now
    reconcile.beat(name="sweep", now=later(now, 60))
    assert ServiceBeat.objects.get(name="sweep").alive_since == later(now, 60)


def test_unacknowledged_commands_are_sent_again(now, gateway):
    first, second = launch(make_gang_job(make_lab()), now)
    acknowledge(first, now)
    reconcile.resend_commands(now=later(now, 0.5))
    assert gateway.parcels == []
    reconcile.resend_commands(now=later(now, 2))
    assert [command.replica_id for command in gateway.commands] == [second.pk]
    reconcile.resend_commands(now=later(now, 4))
    assert len(gateway.parcels) == 1
    reconcile.resend_commands(now=later(now, 8))
    assert [command.replica_id for command in gateway.commands] == [second.pk] * 2


def test_commands_that_nobody_needs_are_closed_instead(now, gateway):
    job = make_gang_job(make_lab())
    first, second = launch(job, now)
    gang.end_attempt(job=job, end=End(Cause.STOPPED, "Stopped."), now=now)
    end(second, Cause.STOPPED, now)
    reconcile.resend_commands(now=later(now, 2))
    sent = [(type(command).__name__, command.replica_id) for command in gateway.commands]
    assert sent == [("Stop", first.pk)]
    assert Command.objects.filter(refused="no longer needed").count() == 3


def test_nothing_is_sent_to_a_lost_node(now, gateway):
    first, _second = launch(make_gang_job(make_lab()), now)
    Node.objects.filter(pk=first.node_id).update(state=NodeState.LOST.value)
    reconcile.resend_commands(now=later(now, 2))
    assert first.node_id not in {parcel.node_id for parcel in gateway.parcels}


def test_a_broker_that_is_down_is_tried_once_a_sweep(now, gateway):
    launch(make_gang_job(make_lab()), now)
    gateway.broken = True
    reconcile.resend_commands(now=later(now, 2))
    assert Command.objects.filter(sent_at=None).count() == 2


def test_what_was_taken_stays_permitted_until_it_begins(now, gateway):
    first, _second = launch(make_gang_job(make_lab()), now)
    acknowledge(first, now)
    taken = Command.objects.get(replica=first, kind="launch").pk
    reconcile.renew_permits(now=later(now, 0.5))
    reconcile.renew_permits(now=later(now, 60))
    assert gateway.renewed == [taken, taken]
    gang.on_started(replica=first, pid=1001, warm=False, now=now)
    reconcile.renew_permits(now=later(now, 62))
    assert gateway.renewed == [taken, taken]


@pytest.mark.parametrize("end_it", ["stopped", "lost", "of an earlier launch"])
def test_what_nobody_waits_for_is_permitted_no_longer(end_it, now, gateway):
    job = make_gang_job(make_lab(), workers=1)
    (only,) = launch(job, now)
    acknowledge(only, now)
    if end_it == "stopped":
        gang.end_attempt(job=job, end=End(Cause.STOPPED, "Stopped."), now=now)
    elif end_it == "lost":
        gang.on_lost(replica=only, reason="Gone.", now=now)
    else:
        Job.objects.filter(pk=job.pk).update(attempt=job.attempt + 1)
    reconcile.renew_permits(now=later(now, 2))
    assert gateway.renewed == []


def test_permits_that_redis_does_not_renew_are_renewed_by_the_next_sweep(now, gateway):
    (only,) = launch(make_gang_job(make_lab(), workers=1), now)
    acknowledge(only, now)
    gateway.broken = True
    reconcile.renew_permits(now=later(now, 2))
    gateway.broken = False
    reconcile.renew_permits(now=later(now, 4))
    assert gateway.renewed == [Command.objects.get(replica=only, kind="launch").pk]


def test_an_agent_that_never_takes_its_launch_is_named(now):
    job = make_gang_job(make_lab())
    first, second = launch(job, now)
    acknowledge(first, now)
    Command.objects.update(created_at=now)
    disagreements.give_up_unanswered_launches(now=later(now, 59))
    disagreements.give_up_unanswered_launches(now=later(now, 61))
    refreshed(job, [first, second])
    assert (second.status, second.cause) == (ReplicaStatus.EXITED, Cause.NODE_LOST)
    assert job.status == JobStatus.RESTARTING
    assert "did not accept the launch command within 60 s" in job.reason


def test_a_replica_that_its_agent_no_longer_lists_is_given_up(now):
    job = make_gang_job(make_lab())
    first, second = run(job, now)
    for seconds in (0, 10, 21):
        moment = later(now, seconds)
        hear(first.node, moment, first)
        hear(second.node, moment)
        disagreements.give_up_unlisted(now=moment)
    refreshed(job, [first, second])
    assert (first.status, second.status) == (ReplicaStatus.RUNNING, ReplicaStatus.LOST)
    assert second.reason == "The agent of node-2 runs, but has not known this process for 21 s."
    assert job.status == JobStatus.RESTARTING


def test_a_replica_listed_again_is_forgiven(now):
    (only,) = run(make_gang_job(make_lab(nodes=1), workers=1), now)
    hear(only.node, now)
    disagreements.give_up_unlisted(now=now)
    hear(only.node, later(now, 15), only)
    disagreements.give_up_unlisted(now=later(now, 15))
    hear(only.node, later(now, 30))
    disagreements.give_up_unlisted(now=later(now, 30))
    only.refresh_from_db()
    assert (only.status, only.absent_since) == (ReplicaStatus.RUNNING, later(now, 30))


def test_an_agent_that_is_started_again_and_again_misses_nothing_before_it_has_said_what_it_holds(now):
    (only,) = run(make_gang_job(make_lab(nodes=1), workers=1), now)
    hear(only.node, now)
    for seconds in range(0, 60, 5):
        moment = later(now, seconds)
        reports.apply([(only.node, Hello(node_id=only.node.pk, address="", inventory=make_inventory()))], now=moment)
        disagreements.give_up_unlisted(now=moment)
    only.refresh_from_db()
    assert only.status == ReplicaStatus.RUNNING


def test_what_a_silent_agent_does_not_say_counts_for_nothing(now):
    (only,) = run(make_gang_job(make_lab(nodes=1), workers=1), now)
    hear(only.node, now)
    for seconds in (6, 60):
        disagreements.give_up_unlisted(now=later(now, seconds))
    only.refresh_from_db()
    assert only.status == ReplicaStatus.RUNNING


def test_a_process_that_should_not_run_is_ended(now):
    (only,) = run(make_gang_job(make_lab(nodes=1), workers=1), now)
    gang.on_lost(replica=only, reason="Node node-1 is lost.", now=now)
    moment = later(now, 10)
    hear(only.node, moment, only)
    before = kinds(only.node, "stop").count()
    disagreements.stop_unknown(now=moment)
    disagreements.stop_unknown(now=moment)
    assert kinds(only.node, "stop").count() == before + 1


def test_a_process_of_a_deleted_job_is_ended(now):
    job = make_gang_job(make_lab(nodes=1), workers=1)
    (only,) = run(job, now)
    node, replica_id = only.node, only.pk
    hear(node, now, only)
    job.delete()
    disagreements.stop_unknown(now=now)
    disagreements.stop_unknown(now=now)
    (row,) = kinds(node, "stop")
    command = decode_command(bytes(row.body))
    assert (command.replica_id, command.attempt, row.replica_id) == (replica_id, 1, None)


def test_an_ended_replica_still_listed_as_exited_is_left_alone(now):
    (only,) = run(make_gang_job(make_lab(nodes=1), workers=1), now)
    end(only, Cause.COMPLETED, now, code=0)
    holding = [{"replica_id": only.pk, "attempt": 1, "status": "exited", "pid": 1}]
    Node.objects.filter(pk=only.node_id).update(last_seen_at=later(now, 30), holding=holding)
    disagreements.stop_unknown(now=later(now, 30))
    assert not kinds(only.node, "stop").exists()


def test_stops_are_repeated_and_a_process_that_will_not_end_costs_its_node(now):
    job = make_gang_job(make_lab(nodes=1), workers=1)
    (only,) = run(job, now)
    gang.end_attempt(job=job, end=End(Cause.STOPPED, "Stopped by mel."), now=now)
    acknowledge(only, now, kind="stop")
    disagreements.repeat_stops(now=later(now, 10))
    assert kinds(only.node, "stop").count() == 1
    disagreements.repeat_stops(now=later(now, 16))
    assert kinds(only.node, "stop").count() == 2
    Command.objects.filter(kind="stop").update(created_at=now)
    disagreements.repeat_stops(now=later(now, 121))
    refreshed(job, [only])
    node = Node.objects.get(pk=only.node_id)
    assert (only.status, job.status, node.state) == (ReplicaStatus.LOST, JobStatus.STOPPED, NodeState.CORDONED)
    assert "could not be ended within 121 s" in node.state_reason


def test_the_time_limit_ends_a_job(now):
    job = make_gang_job(make_lab(nodes=1), workers=1, time_limit_s=60)
    (only,) = run(job, now)
    reconcile.enforce_time_limits(now=later(now, 60))
    job.refresh_from_db()
    assert job.status == JobStatus.RUNNING
    reconcile.enforce_time_limits(now=later(now, 61))
    end(only, Cause.STOPPED, later(now, 63))
    job.refresh_from_db()
    assert (job.status, job.cause) == (JobStatus.FAILED, Cause.TIME_LIMIT)
    assert job.reason == "It ran longer than its time limit of 60 s."


def test_a_time_limit_counts_the_work_of_all_launches_and_no_pauses(now):
    job = make_gang_job(make_lab(nodes=1), workers=1, time_limit_s=60)
    run(job, now)
    before = {"started_at": later(now, -900), "running_at": later(now, -800), "ended_at": later(now, -770)}
    Attempt.objects.create(job=job, number=job.attempt + 1, **before)
    reconcile.enforce_time_limits(now=later(now, 30))
    job.refresh_from_db()
    assert job.status == JobStatus.RUNNING
    reconcile.enforce_time_limits(now=later(now, 31))
    job.refresh_from_db()
    assert job.status == JobStatus.STOPPING


def test_gangs_are_settled_though_the_event_was_lost(now):
    job = make_job(cluster=make_lab(), status=JobStatus.RUNNING)
    make_replica(job, status=ReplicaStatus.EXITED, cause=Cause.COMPLETED.value, ended_at=now)
    reconcile.sweep(now=now)
    job.refresh_from_db()
    assert job.status == JobStatus.SUCCEEDED


def test_waiting_jobs_are_dispatched(now):
    job = make_gang_job(make_lab())
    reconcile.sweep(now=now)
    job.refresh_from_db()
    assert job.status == JobStatus.LAUNCHING


def test_a_drained_node_is_cordoned(now):
    cluster = make_lab()
    (only,) = run(make_gang_job(cluster, workers=1), now)
    cluster.nodes.update(state=NodeState.DRAINING.value)
    draining.cordon_drained_nodes(now=now)
    states = dict(cluster.nodes.values_list("name", "state"))
    assert states == {"node-1": NodeState.DRAINING, "node-2": NodeState.CORDONED}
    end(only, Cause.COMPLETED, now, code=0)
    draining.cordon_drained_nodes(now=now)
    assert set(cluster.nodes.values_list("state", flat=True)) == {NodeState.CORDONED}


def test_folders_go_when_everything_has_arrived(now):
    (only,) = run(make_gang_job(make_lab(nodes=1), workers=1), now)
    end(only, Cause.COMPLETED, now, code=0)
    Cursor.objects.create(replica=only, stream="trainer", offset=90, final=100)
    Cursor.objects.create(replica=only, stream="shim", offset=5, final=5)
    node_folders.forget_stored(now=later(now, 61))
    assert not kinds(only.node, "forget").exists()
    Cursor.objects.filter(replica=only).update(offset=100)
    node_folders.forget_stored(now=later(now, 59))
    assert not kinds(only.node, "forget").exists()
    node_folders.forget_stored(now=later(now, 61))
    node_folders.forget_stored(now=later(now, 62))
    (row,) = kinds(only.node, "forget")
    assert decode_command(bytes(row.body)).replica_id == only.pk


def test_folders_are_looked_at_in_turn(now, monkeypatch):
    """What never becomes complete keeps nothing behind it waiting."""
    monkeypatch.setattr(node_folders, "LOOKED_AT", 2)
    job = make_job(status=JobStatus.SUCCEEDED)
    ended = [make_replica(job, index=place, status=ReplicaStatus.EXITED, ended_at=now) for place in range(5)]
    Cursor.objects.bulk_create(Cursor(replica=each, stream="data") for each in ended[:4])
    Cursor.objects.create(replica=ended[4], stream="data", offset=5, final=5)
    moment = later(now, 61)
    for _ in range(3):
        assert not Command.objects.exists()
        node_folders.forget_stored(now=moment)
    assert [row.replica for row in Command.objects.filter(kind="forget")] == [ended[4]]


def test_tidying(now):
    cluster = make_cluster()
    JoinToken.objects.create(cluster=cluster, digest="a", expires_at=now - timedelta(days=8))
    JoinToken.objects.create(cluster=cluster, digest="b", expires_at=now - timedelta(days=6))
    replica = make_replica(status=ReplicaStatus.EXITED, held=True)
    reconcile.tidy(now=now)
    assert list(JoinToken.objects.values_list("digest", flat=True)) == ["b"]
    assert not Replica.objects.get(pk=replica.pk).held


@pytest.mark.parametrize("fault", [StaleTransition("somebody was faster"), KeyError("a row nobody expects")])
def test_one_failing_step_does_not_keep_the_others_from_their_work(now, monkeypatch, fault):
    job = make_gang_job(make_lab())

    def broken(*, now):
        raise fault

    monkeypatch.setattr(reconcile, "STEPS", (broken, *reconcile.STEPS))
    reconcile.sweep(now=now)
    assert Job.objects.get(pk=job.pk).status == JobStatus.LAUNCHING
