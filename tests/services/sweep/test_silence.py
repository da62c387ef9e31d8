"""Leases, seen from the control plane: nothing is given up before its lease is over, nothing launched before it has
ended for sure, and no wall clock changes that."""

from datetime import timedelta

import pytest

from orchestrator import agents
from orchestrator.domain.gang.decisions import End
from orchestrator.models import Command, Event, Job, Node, Replica, ServiceBeat
from orchestrator.services import fencing
from orchestrator.services.gang import gang, watch
from orchestrator.services.intake import reports
from orchestrator.services.jobs import dispatch
from orchestrator.services.sweep import disagreements, reconcile, silence
from tests.data.fakes import heartbeat
from tests.services.gang.gangs import end, hear, launch, make_gang_job, make_lab, refreshed, run
from worker_agent.protocol.states import Cause, JobStatus, NodeState, ReplicaStatus

SWEEP_S = 2.0


class Time:
    """The wall clock of the control plane and the sweep's monotonic one, and a sweep every two seconds."""

    def __init__(self, now, monkeypatch):
        self.now, self.clock, self.rate = now, 1000.0, 1.0
        monkeypatch.setattr(watch, "monotonic", lambda: self.clock)
        monkeypatch.setattr(silence, "NODES", watch.Watch())
        monkeypatch.setattr(silence, "LOST", watch.Watch())

    def set(self, **ahead):
        """Somebody sets the wall clock."""
        self.now += timedelta(**ahead)

    def go(self, seconds, *, heard=(), listed=(), listening=True):
        """Time passes; `heard` are the nodes that speak, with the `listed` replicas as running."""
        for _ in range(round(seconds / SWEEP_S)):
            self.now += timedelta(seconds=SWEEP_S * self.rate)
            self.clock += SWEEP_S
            for node in heard:
                hear(node, self.now, *(replica for replica in listed if replica.node_id == node.pk))
            if listening:
                self._ingest_beats()
            reconcile.lose_silent_nodes(now=self.now)

    def _ingest_beats(self):
        row, _ = ServiceBeat.objects.get_or_create(
            name="ingest", defaults={"alive_since": self.now - timedelta(minutes=1), "beat_at": self.now}
        )
        if not timedelta(0) <= self.now - row.beat_at <= timedelta(seconds=3):
            row.alive_since = self.now
        row.beat_at = self.now
        row.save()


@pytest.fixture
def time(now, monkeypatch):
    return Time(now, monkeypatch)


@pytest.fixture
def gang_of_two(now, time):
    """A job on node-1 and node-2 of three, both heard of until now."""
    job = make_gang_job(make_lab(nodes=3))
    first, second = run(job, now)
    time.go(4, heard=Node.objects.all())
    return job, first, second


def speaking(*silent):
    return Node.objects.exclude(pk__in=[replica.node_id for replica in silent])


def test_a_node_away_for_less_than_its_lease_is_lost_and_found_and_nothing_restarts(time, gang_of_two):
    job, first, second = gang_of_two
    time.go(28, heard=speaking(second))
    refreshed(job, [first, second])
    node = Node.objects.get(pk=second.node_id)
    assert (node.state, second.status, job.status) == (NodeState.LOST, ReplicaStatus.RUNNING, JobStatus.RUNNING)
    told = Event.objects.get(job=job, kind="node_silent").text
    assert told == "node-2 is lost. Its processes are given up when it has been silent for 30 s."
    reports.apply([(node, heartbeat(node))], now=time.now)
    time.go(30, heard=speaking(), listed=[first, second])
    refreshed(job, [first, second])
    assert Node.objects.get(pk=second.node_id).state == NodeState.READY
    assert (second.status, job.status, job.attempt) == (ReplicaStatus.RUNNING, JobStatus.RUNNING, 1)


def test_what_was_given_up_holds_its_place_until_it_has_ended_for_sure(time, gang_of_two):
    job, first, second = gang_of_two
    time.go(30, heard=speaking(second))
    refreshed(job, [second])
    assert second.status == ReplicaStatus.RUNNING
    time.go(4, heard=speaking(second))
    refreshed(job, [second])
    assert (second.status, second.cause, second.held) == (ReplicaStatus.LOST, Cause.NODE_LOST, True)
    assert job.status == JobStatus.RESTARTING
    end(first, Cause.STOPPED, time.now, signal=15)
    job.refresh_from_db()
    assert job.status == JobStatus.SUBMITTED
    time.go(6, heard=speaking(second))
    assert not dispatch.dispatch_job(job_id=job.pk, now=time.now)
    job.refresh_from_db()
    assert job.waiting_for == (
        "waits until worker 1 on node-2 has ended for sure: a process ends itself when its node could not reach "
        "the control plane for 30 s"
    )
    time.go(4, heard=speaking(second))
    assert {replica.node_name for replica in launch(job, time.now)} == {"node-1", "node-3"}


@pytest.mark.parametrize("hours", [2, -2])
@pytest.mark.parametrize("at_s", [12, 36])
def test_a_wall_clock_that_is_set_shortens_no_lease_and_lengthens_none_for_long(time, gang_of_two, hours, at_s):
    job, first, second = gang_of_two
    time.go(at_s, heard=speaking(second))
    if at_s > 30:
        end(first, Cause.STOPPED, time.now, signal=15)
    time.set(hours=hours)
    time.go(4, heard=speaking(second))
    refreshed(job, [second])
    assert second.held
    assert second.status == (ReplicaStatus.LOST if at_s > 30 else ReplicaStatus.RUNNING)
    time.go(60, heard=speaking(second))
    refreshed(job, [second])
    assert (second.status, second.held) == (ReplicaStatus.LOST, False)


def test_a_wall_clock_that_runs_fast_shortens_no_lease(time, gang_of_two):
    _job, _first, second = gang_of_two
    time.rate = 1.4
    time.go(28, heard=speaking(second))  # 39 s by the wall
    second.refresh_from_db()
    assert second.status == ReplicaStatus.RUNNING
    time.go(4, heard=speaking(second))
    second.refresh_from_db()
    assert second.status == ReplicaStatus.LOST


def test_nobody_is_given_up_while_nobody_listens(time, gang_of_two, settings):
    job, first, second = gang_of_two
    time.go(600, listening=False)
    refreshed(job, [first, second])
    assert (first.status, second.status) == (ReplicaStatus.RUNNING, ReplicaStatus.RUNNING)
    time.go(settings.NODE_LOST_AFTER_S // 2)
    assert not Node.objects.filter(state=NodeState.LOST.value).exists()


def test_a_node_that_is_back_without_the_process_frees_its_place_and_with_it_keeps_it(time, gang_of_two):
    job, first, second = gang_of_two
    time.go(34, heard=speaking(second))
    node = Node.objects.get(pk=second.node_id)
    reports.apply([(node, heartbeat(node))], now=time.now)
    time.go(20, heard=speaking(), listed=[first, second])
    assert fencing.waits_for(job).startswith("waits until worker 1 on node-2")
    time.go(4, heard=speaking(), listed=[first])
    assert Replica.objects.get(pk=second.pk).held
    time.go(6, heard=speaking(), listed=[first])
    assert not Replica.objects.get(pk=second.pk).held
    assert fencing.waits_for(job) == ""


def test_a_process_that_will_not_end_holds_its_job_up_only_so_long(time, gang_of_two):
    job, first, second = gang_of_two
    time.go(34, heard=speaking(second))
    node = Node.objects.get(pk=second.node_id)
    reports.apply([(node, heartbeat(node))], now=time.now)
    time.go(60, heard=speaking(), listed=[first, second])
    time.set(hours=2)
    time.go(58, heard=speaking(), listed=[first, second])
    assert fencing.waits_for(job)
    time.go(10, heard=speaking(), listed=[first, second])
    assert not fencing.waits_for(job)


def test_a_job_that_is_being_stopped_waits_for_no_lease_and_its_devices_do(time, gang_of_two):
    job, first, second = gang_of_two
    gang.end_attempt(job=job, end=End(Cause.STOPPED, "Stopped by ada."), now=time.now)
    end(first, Cause.STOPPED, time.now, signal=15)
    time.go(14, heard=speaking(second))
    refreshed(job, [second])
    assert (job.status, second.status, second.held) == (JobStatus.STOPPED, ReplicaStatus.LOST, True)
    time.go(30, heard=speaking(second))
    assert not Replica.objects.get(pk=second.pk).held


def test_without_a_lease_a_lost_node_loses_what_runs_there_at_once(time, now, settings):
    settings.LEASE_S = 0
    job = make_gang_job(make_lab(nodes=3))
    first, second = run(job, now)
    time.go(14, heard=speaking(second))
    refreshed(job, [first, second])
    assert (second.status, second.held) == (ReplicaStatus.LOST, False)
    end(first, Cause.STOPPED, time.now, signal=15)
    assert dispatch.dispatch_job(job_id=job.pk, now=time.now)


def test_the_lease_of_its_launch_counts_whatever_is_set_now(time, gang_of_two, settings):
    _job, _first, second = gang_of_two
    settings.LEASE_S = 3600
    second.refresh_from_db()
    assert second.lease_s == 30
    time.go(34, heard=speaking(second))
    second.refresh_from_db()
    assert second.status == ReplicaStatus.LOST


def test_a_launch_on_its_way_to_a_lost_node_is_withdrawn_before_the_node_is_given_up(time, now, gateway):
    job = make_gang_job(make_lab(nodes=1), workers=1)
    (only,) = launch(job, now)
    command = Command.objects.get(replica=only, kind="launch")
    gateway.broken = True
    with pytest.raises(agents.NotSent):
        time.go(40)
    refreshed(job, [only])
    assert only.status == ReplicaStatus.ASSIGNED
    gateway.broken = False
    time.go(2)
    refreshed(job, [only])
    assert (only.status, job.status) == (ReplicaStatus.LOST, JobStatus.SUBMITTED)
    assert gateway.withdrawn == [command.pk]


def test_a_launch_on_a_lost_node_is_given_up_with_it_not_refused(time, now, settings):
    settings.LEASE_S = 300
    (only,) = launch(make_gang_job(make_lab(nodes=1), workers=1), now)
    time.go(100)
    disagreements.give_up_unanswered_launches(now=time.now + timedelta(seconds=100))
    only.refresh_from_db()
    assert only.status == ReplicaStatus.ASSIGNED
    assert Job.objects.get().status == JobStatus.LAUNCHING
