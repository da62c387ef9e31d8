"""The life of a gang from what its nodes say: every way it can end, each piece of news also twice."""

from orchestrator.domain.gang.decisions import End
from orchestrator.models import Attempt, Command, Event, Job, Replica
from orchestrator.queries import restarts
from orchestrator.services.gang import gang
from orchestrator.services.jobs import dispatch
from tests.factories import make_job
from tests.services.gang.gangs import (
    acknowledge,
    end,
    later,
    launch,
    lose_peer,
    make_gang_job,
    make_lab,
    refreshed,
    run,
)
from worker_agent.protocol.codec import decode_command
from worker_agent.protocol.states import Cause, JobStatus, ReplicaStatus, Strategy


def stops_of(replica):
    return [decode_command(bytes(row.body)) for row in Command.objects.filter(replica=replica, kind="stop")]


def test_acknowledged_started_training(now):
    job = make_gang_job(make_lab())
    first, second = launch(job, now)
    acknowledge(first, now)
    gang.on_started(replica=first, pid=77, warm=True, now=now)
    gang.on_phase(replica=first, phase="training", now=now)
    refreshed(job, [first, second])
    assert (first.status, first.pid, first.phase) == (ReplicaStatus.RUNNING, 77, "training")
    assert job.status == JobStatus.LAUNCHING
    gang.on_phase(replica=second, phase="training", now=later(now, 3))
    job.refresh_from_db()
    assert (job.status, job.started_at) == (JobStatus.RUNNING, later(now, 3))
    assert Event.objects.filter(
        job=job, text="worker 0 started on node-1 as process 77 (forked from the warm process)."
    )


def test_what_a_short_job_costs(now, django_assert_max_num_queries):
    """Ingest holds the one write transaction of SQLite meanwhile: each query counts."""
    job = make_job(cluster=make_lab())
    with django_assert_max_num_queries(29):
        assert dispatch.dispatch_waiting(now=now) == 1
    replica = job.replicas.get()
    with django_assert_max_num_queries(10):
        acknowledge(replica, now)
    with django_assert_max_num_queries(7):
        gang.on_started(replica=replica, pid=77, warm=True, now=now)
    with django_assert_max_num_queries(14):
        gang.on_phase(replica=replica, phase="training", now=now)
    with django_assert_max_num_queries(14):
        end(replica, Cause.COMPLETED, now, code=0)
    job.refresh_from_db()
    assert job.status == JobStatus.SUCCEEDED


def test_the_same_news_twice_changes_nothing(now):
    job = make_gang_job(make_lab())
    replicas = run(job, now)
    count = job.events.count()
    for replica in replicas:
        acknowledge(replica, now)
        gang.on_started(replica=replica, pid=replica.pid, warm=False, now=now)
        gang.on_phase(replica=replica, phase="training", now=now)
    gang.advance(job_id=job.pk, now=now)
    assert job.events.count() == count


def test_success(now, enqueued, django_capture_on_commit_callbacks):
    job = make_gang_job(make_lab())
    first, second = run(job, now)
    end(first, Cause.COMPLETED, now, code=0)
    job.refresh_from_db()
    assert job.status == JobStatus.RUNNING
    with django_capture_on_commit_callbacks(execute=True):
        end(second, Cause.COMPLETED, later(now, 1), code=0)
        end(second, Cause.COMPLETED, later(now, 2), code=0)
    refreshed(job, [first, second])
    assert (job.status, job.cause, job.ended_at) == (JobStatus.SUCCEEDED, Cause.COMPLETED, later(now, 1))
    assert not Replica.objects.filter(held=True).exists()
    assert enqueued == ["trainyard.dispatch"]
    attempt = Attempt.objects.get(job=job)
    assert (attempt.cause, attempt.ended_at) == (Cause.COMPLETED, later(now, 1))


def test_a_crashed_worker_ends_the_gang_with_its_reason(now):
    job = make_gang_job(make_lab())
    first, second = run(job, now)
    end(second, Cause.SIGNAL, now, signal=11, message="The process was killed by signal 11 (SIGSEGV).")
    refreshed(job, [first, second])
    assert (job.status, job.reason) == (JobStatus.STOPPING, "worker 1 on node-2 was killed by signal 11 (SIGSEGV).")
    assert len(stops_of(first)) == 1
    end(first, Cause.STOPPED, later(now, 1), signal=15)
    job.refresh_from_db()
    assert (job.status, job.cause) == (JobStatus.FAILED, Cause.SIGNAL)
    assert job.reason == "worker 1 on node-2 was killed by signal 11 (SIGSEGV)."
    assert job.events.get(kind="replica_failed").text == job.reason


def test_the_root_cause_wins_though_its_consequence_is_heard_first(now):
    job = make_gang_job(make_lab())
    first, second = run(job, now)
    lose_peer(first, now)
    job.refresh_from_db()
    assert job.status == JobStatus.RUNNING
    end(second, Cause.OUT_OF_MEMORY, later(now, 0.5), signal=9)
    job.refresh_from_db()
    assert (job.status, job.cause) == (JobStatus.FAILED, Cause.OUT_OF_MEMORY)


def test_a_consequence_alone_is_acted_upon_by_the_sweep(now):
    job = make_gang_job(make_lab())
    first, second = run(job, now)
    lose_peer(first, now)
    gang.advance(job_id=job.pk, now=later(now, 2))
    job.refresh_from_db()
    assert (job.status, job.cause) == (JobStatus.RESTARTING, Cause.EXCEPTION)
    assert job.events.get(kind="job_restarting").text.endswith("So the rest of the gang is ended.")
    end(second, Cause.STOPPED, later(now, 3))
    job.refresh_from_db()
    assert (job.status, job.cause) == (JobStatus.SUBMITTED, "")
    attempt = job.attempts.get()
    assert (attempt.cause, attempt.blame, attempt.failed_on) == (Cause.EXCEPTION, "peer", None)
    assert [row.counted for row in restarts.of_job(job)] == [False]


def test_processes_that_only_lost_one_another_twice_fail_the_job(now):
    job = make_gang_job(make_lab(), max_restarts=3)
    for moment in (0, 60):
        for replica in run(job, later(now, moment)):
            lose_peer(replica, later(now, moment))
    job.refresh_from_db()
    assert (job.status, job.cause) == (JobStatus.FAILED, Cause.EXCEPTION)
    assert "No process failed by itself, as in attempt 1" in job.reason


def test_a_refused_launch_fails_the_job(now):
    job = make_gang_job(make_lab())
    first, second = launch(job, now)
    acknowledge(second, now, refused="TensorFlow is not installed")
    end(first, Cause.STOPPED, now)
    refreshed(job, [first, second])
    assert (job.status, job.cause) == (JobStatus.FAILED, Cause.LAUNCH_REFUSED)
    assert job.reason == "worker 1 on node-2 was not launched: TensorFlow is not installed"


def test_a_taken_port_launches_the_gang_again_on_other_ports(now, enqueued, django_capture_on_commit_callbacks):
    job = make_gang_job(make_lab())
    ports = set()
    for launch_number in (1, 2, 3):
        first, second = launch(job, now)
        ports |= {(replica.host, replica.port) for replica in (first, second)}
        acknowledge(first, now)
        end(first, Cause.PORT_TAKEN, now, code=1, message="TensorFlow could not listen on its port.")
        job.refresh_from_db()
        assert job.status == (JobStatus.STOPPING if launch_number == 3 else JobStatus.RESTARTING)
        with django_capture_on_commit_callbacks(execute=True):
            end(second, Cause.STOPPED, now)
        job.refresh_from_db()
        if launch_number < 3:
            assert (job.status, job.cause, job.reason) == (JobStatus.SUBMITTED, "", "")
            assert "trainyard.dispatch" in enqueued
    assert (job.status, job.cause) == (JobStatus.FAILED, Cause.PORT_TAKEN)
    assert job.reason.endswith("This was attempt 3 in a row without a step.")
    assert len(ports) == 6
    assert list(job.attempts.values_list("cause", flat=True)) == [Cause.PORT_TAKEN] * 3


def test_another_launch_begins_at_the_beginning(now):
    job = make_gang_job(make_lab(), workers=1)
    (only,) = run(job, now)
    Job.objects.filter(pk=job.pk).update(step=80, total_steps=100, epoch=4, metrics={"loss": 0.1})
    end(only, Cause.AGENT_SHUTDOWN, now)
    launch(job, now)
    assert (job.attempt, job.step, job.total_steps, job.epoch, job.metrics) == (2, 0, 100, 0, {})


def test_reports_of_an_earlier_launch_move_nothing_of_this_one(now):
    job = make_gang_job(make_lab())
    first, second = launch(job, now)
    end(first, Cause.PORT_TAKEN, now, code=1)
    end(second, Cause.STOPPED, now)
    replicas = launch(job, now)
    end(first, Cause.EXCEPTION, later(now, 5), code=1, message="late")
    gang.on_phase(replica=second, phase="training", now=later(now, 5))
    refreshed(job, replicas)
    assert (job.status, job.attempt) == (JobStatus.LAUNCHING, 2)
    assert {replica.status for replica in replicas} == {ReplicaStatus.ASSIGNED}


def test_parameter_servers_are_ended_when_the_chief_has_completed(now):
    job = make_gang_job(make_lab(), strategy=Strategy.PARAMETER_SERVER, ps=1)
    replicas = {str(replica): replica for replica in run(job, now)}
    assert job.status == JobStatus.RUNNING
    end(replicas.pop("chief:0"), Cause.COMPLETED, now, code=0)
    job.refresh_from_db()
    assert (job.status, job.cause) == (JobStatus.STOPPING, Cause.COMPLETED)
    assert all(len(stops_of(replica)) == 1 for replica in replicas.values())
    for replica in replicas.values():
        end(replica, Cause.STOPPED, now, signal=15)
    job.refresh_from_db()
    assert (job.status, job.cause, job.reason) == (JobStatus.SUCCEEDED, Cause.COMPLETED, "")


def test_a_stop_that_overtakes_the_launch_ends_the_replica(now):
    job = make_gang_job(make_lab())
    replicas = launch(job, now)
    gang.end_attempt(job=job, end=End(Cause.STOPPED, "Stopped by mel."), now=now)
    for replica in replicas:
        acknowledge(replica, now, kind="stop")
    job.refresh_from_db()
    assert job.status == JobStatus.STOPPED


def test_a_launch_that_was_taken_is_not_ended_by_the_stops_acknowledgement(now):
    job = make_gang_job(make_lab())
    first, _second = launch(job, now)
    acknowledge(first, now)
    gang.end_attempt(job=job, end=End(Cause.STOPPED, "Stopped by mel."), now=now)
    acknowledge(first, now, kind="stop")
    first.refresh_from_db()
    assert first.status == ReplicaStatus.STARTING


def test_an_exit_before_the_acknowledgement_counts(now):
    job = make_gang_job(make_lab(), workers=1)
    (only,) = launch(job, now)
    end(only, Cause.EXCEPTION, now, code=1, message="ValueError: bad")
    acknowledge(only, now)
    refreshed(job, [only])
    assert (job.status, only.status) == (JobStatus.FAILED, ReplicaStatus.EXITED)
    assert job.reason == "worker 0 on node-1 failed: ValueError: bad"


def test_freed_devices_serve_the_next_job(now):
    cluster = make_lab(nodes=1, slots=1)
    job, waiting = make_gang_job(cluster, workers=1), make_gang_job(cluster, workers=1)
    (only,) = run(job, now)
    assert dispatch.dispatch_waiting(now=now) == 0
    end(only, Cause.COMPLETED, now, code=0)
    assert dispatch.dispatch_waiting(now=now) == 1
    waiting.refresh_from_db()
    assert waiting.status == JobStatus.LAUNCHING


def test_a_deleted_job_is_no_trouble(now):
    job = make_gang_job(make_lab())
    replicas = launch(job, now)
    job_id = job.pk
    job.delete()
    gang.advance(job_id=job_id, now=now)
    gang.on_phase(replica=replicas[0], phase="training", now=now)


def test_who_loses_its_peers_to_a_stop_was_stopped_too(now):
    job = make_gang_job(make_lab())
    first, second = run(job, now)
    job.refresh_from_db()
    gang.end_attempt(job=job, end=End(Cause.STOPPED, "Stopped by ada."), now=now)
    end(first, Cause.STOPPED, now)
    lose_peer(second, now)
    refreshed(job, [second])
    assert (job.status, second.cause, second.reason) == (JobStatus.STOPPED, Cause.STOPPED, "Stopped by ada.")
