"""Pausing and resuming from what nodes say: who is asked to save, what is written, what a drained node's jobs do."""

import pytest

from orchestrator.models import Attempt, Checkpoint, Command, Cursor, Job, Node
from orchestrator.queries import restarts
from orchestrator.services.errors import Conflict, Forbidden
from orchestrator.services.gang import gang
from orchestrator.services.jobs import jobs
from orchestrator.services.sweep import disagreements, draining, reconcile
from tests.factories import make_user
from tests.services.gang.gangs import (
    acknowledge,
    end,
    keep,
    later,
    launch,
    lose_peer,
    make_gang_job,
    make_lab,
    refreshed,
    run,
)
from worker_agent.protocol.codec import decode_command
from worker_agent.protocol.states import Cause, JobStatus, NodeState, Strategy

SAVED = "It saved a checkpoint and left."


def stops_of(replica):
    rows = Command.objects.filter(replica=replica, kind="stop").order_by("pk")
    return [decode_command(bytes(row.body)) for row in rows]


def test_a_pause_saves_frees_the_devices_and_is_taken_up_elsewhere(now, enqueued, django_capture_on_commit_callbacks):
    job = make_gang_job(make_lab(nodes=3))
    replicas = run(job, now)
    jobs.pause_job(job_id=job.pk, by=job.owner, now=now)
    jobs.pause_job(job_id=job.pk, by=job.owner, now=now)
    refreshed(job, replicas)
    assert (job.status, job.reason) == (JobStatus.PAUSING, f"Paused by {job.owner.username}.")
    for replica in replicas:
        (stop,) = stops_of(replica)
        assert (stop.save, stop.cause, stop.grace_s) == (True, Cause.PAUSED, 120)
    Job.objects.filter(pk=job.pk).update(step=57)
    keep(job, 57)
    end(replicas[0], Cause.PAUSED, later(now, 1), code=75, saved=True, message=SAVED)
    gang.advance(job_id=job.pk, now=later(now, 1))
    job.refresh_from_db()
    assert job.status == JobStatus.PAUSING
    end(replicas[1], Cause.PAUSED, later(now, 2), code=75, saved=True, message=SAVED)
    refreshed(job, replicas)
    assert (job.status, job.cause, job.ended_at) == (JobStatus.PAUSED, Cause.PAUSED, None)
    assert not any(replica.held for replica in replicas)
    attempt = Attempt.objects.get(job=job)
    assert (attempt.cause, attempt.step_reached, attempt.blame, attempt.failed_on) == (Cause.PAUSED, 57, "", None)

    Node.objects.filter(name="node-1").update(state=NodeState.CORDONED.value)
    with django_capture_on_commit_callbacks(execute=True):
        jobs.resume_job(job_id=job.pk, by=job.owner, now=later(now, 60))
    assert enqueued == ["trainyard.dispatch"]
    again = launch(job, later(now, 61))
    assert {replica.node_name for replica in again} == {"node-2", "node-3"}
    assert job.attempts.get(number=2).resumed_step == 57
    (row,) = restarts.of_job(job)
    assert (row.cause, row.counted, row.step_reached, row.steps_lost) == (Cause.PAUSED, False, 57, 0)
    kinds = ("job_pausing", "job_paused", "job_submitted")
    actors = list(job.events.filter(kind__in=kinds).order_by("pk").values_list("kind", "actor"))
    assert actors == [("job_pausing", job.owner_id), ("job_paused", None), ("job_submitted", job.owner_id)]


def test_a_gang_that_saves_and_leaves_unasked_goes_back_into_the_queue(
    now, enqueued, django_capture_on_commit_callbacks
):
    job = make_gang_job(make_lab(nodes=2))
    replicas = run(job, now)
    Job.objects.filter(pk=job.pk).update(step=57)
    keep(job, 57)
    end(replicas[0], Cause.PAUSED, later(now, 1), code=75, saved=True, message=SAVED)
    job.refresh_from_db()
    assert job.status == JobStatus.RUNNING, "which of them was asked is not known yet"
    with django_capture_on_commit_callbacks(execute=True):
        end(replicas[1], Cause.PREEMPTED, later(now, 1), code=75, saved=True, message=SAVED)
    refreshed(job, replicas)
    assert job.status == JobStatus.SUBMITTED
    assert "trainyard.dispatch" in enqueued
    attempt = Attempt.objects.get(job=job)
    assert (attempt.cause, attempt.blame, attempt.failed_on) == (Cause.PAUSED, "", replicas[1].node)
    assert attempt.reason == "worker 1 on node-2 got a SIGTERM from outside."
    launch(job, later(now, 3))
    (row,) = restarts.of_job(job)
    assert (row.counted, row.step_reached, row.step_resumed, row.steps_lost) == (False, 57, 57, 0)


def test_under_parameter_servers_the_chief_saves_then_the_others_are_ended(now):
    job = make_gang_job(make_lab(nodes=3), strategy=Strategy.PARAMETER_SERVER, ps=1)
    replicas = {str(replica): replica for replica in run(job, now)}
    jobs.pause_job(job_id=job.pk, by=job.owner, now=now)
    assert [name for name, replica in replicas.items() if stops_of(replica)] == ["chief:0"]
    end(replicas["chief:0"], Cause.PAUSED, later(now, 1), code=75, saved=True, message=SAVED)
    for name in ("worker:0", "worker:1", "ps:0"):
        (stop,) = stops_of(replicas[name])
        assert (stop.save, stop.cause) == (False, Cause.PAUSED)
        end(replicas[name], Cause.PAUSED, later(now, 2), signal=15, message=job.reason)
    job.refresh_from_db()
    assert job.status == JobStatus.PAUSED


def test_the_chief_saves_while_a_server_that_is_to_leave_still_serves(now):
    job = make_gang_job(make_lab(nodes=3), strategy=Strategy.PARAMETER_SERVER, ps=1)
    replicas = {str(replica): replica for replica in run(job, now)}
    for _ in range(2):
        gang.on_phase(replica=replicas["ps:0"], phase="leaving", now=later(now, 1))
    assert [name for name, replica in replicas.items() if stops_of(replica)] == ["chief:0"]
    end(replicas["chief:0"], Cause.PREEMPTED, later(now, 2), code=75, saved=True, message=SAVED)
    for name in ("worker:0", "worker:1", "ps:0"):  # they were all asked, the ps first
        end(replicas[name], Cause.PREEMPTED, later(now, 3), code=143, message="It served on.")
    job.refresh_from_db()
    assert job.status == JobStatus.SUBMITTED
    attempt, asked = Attempt.objects.get(job=job), replicas["ps:0"]
    assert (attempt.cause, attempt.blame, attempt.failed_on) == (Cause.PAUSED, "", asked.node)
    assert attempt.reason == f"ps 0 on {asked.node_name} got a SIGTERM from outside."
    assert not job.events.filter(kind="replica_failed").exists()


def test_a_server_that_is_to_leave_while_the_job_is_launched_pauses_it_once_it_is_at_work(now):
    job = make_gang_job(make_lab(nodes=3), strategy=Strategy.PARAMETER_SERVER, ps=1)
    replicas = {str(replica): replica for replica in launch(job, now)}
    for name in sorted(replicas, reverse=True):
        acknowledge(replicas[name], now)
        gang.on_started(replica=replicas[name], pid=1000, warm=False, now=now)
        gang.on_phase(replica=replicas[name], phase="training" if name == "chief:0" else "serving", now=now)
        if name == "ps:0":
            gang.on_phase(replica=replicas[name], phase="leaving", now=now)
    job.refresh_from_db()
    assert job.status == JobStatus.PAUSING
    assert [stop.save for stop in stops_of(replicas["chief:0"])] == [True]


def test_a_job_that_ends_already_is_not_paused_for_a_server_that_is_to_leave(now):
    job = make_gang_job(make_lab(nodes=3), strategy=Strategy.PARAMETER_SERVER, ps=1)
    replicas = {str(replica): replica for replica in run(job, now)}
    jobs.stop_job(job_id=job.pk, by=job.owner, now=now)
    gang.on_phase(replica=replicas["ps:0"], phase="leaving", now=later(now, 1))
    job.refresh_from_db()
    assert job.status == JobStatus.STOPPING


@pytest.mark.parametrize("spec", [{"checkpoints_kept": 0}, {"kind": "script"}])
def test_what_cannot_save_is_only_ended(now, spec):
    job = make_gang_job(make_lab(), **spec)
    replicas = run(job, now)
    jobs.pause_job(job_id=job.pk, by=job.owner, now=now)
    asked = {(stop.save, stop.grace_s) for replica in replicas for stop in stops_of(replica)}
    assert asked == {(False, 120 if "kind" in spec else 5)}
    end(replicas[0], Cause.PAUSED, later(now, 1), signal=15)
    lose_peer(replicas[1], later(now, 1))
    job.refresh_from_db()
    assert (job.status, job.cause) == (JobStatus.PAUSED, Cause.PAUSED)


def test_the_checkpoint_is_known_before_the_job_is_paused(now):
    job = make_gang_job(make_lab(), workers=1)
    (only,) = run(job, now)
    Cursor.objects.create(replica=only, stream="trainer", offset=90, final=100)
    jobs.pause_job(job_id=job.pk, by=job.owner, now=now)
    end(only, Cause.PAUSED, now, code=75, saved=True, message=SAVED)
    job.refresh_from_db()
    assert job.status == JobStatus.PAUSING
    Cursor.objects.update(offset=100)
    reconcile.settle_gangs(now=later(now, 2))
    job.refresh_from_db()
    assert job.status == JobStatus.PAUSED


def test_a_pause_that_fails_to_save_fails_in_words(now):
    job = make_gang_job(make_lab())
    first, second = run(job, now)
    jobs.pause_job(job_id=job.pk, by=job.owner, now=now)
    end(first, Cause.EXCEPTION, now, code=1, message="It could not save before it was to leave: No space left.")
    assert [stop.save for stop in stops_of(second)] == [True, False]
    end(second, Cause.STOPPED, later(now, 1), signal=15)
    job.refresh_from_db()
    assert (job.status, job.cause) == (JobStatus.FAILED, Cause.EXCEPTION)
    assert job.reason.startswith("It failed while it was being paused: worker 0 on node-1 failed: It could not save")


def test_a_node_lost_meanwhile_leaves_the_job_paused_with_what_it_cost(now):
    job = make_gang_job(make_lab())
    first, second = run(job, now)
    keep(job, 40)
    jobs.pause_job(job_id=job.pk, by=job.owner, now=now)
    gang.on_lost(replica=second, reason="Node node-2 is lost.", now=later(now, 1))
    end(first, Cause.STOPPED, later(now, 2), signal=15)
    job.refresh_from_db()
    assert (job.status, job.cause) == (JobStatus.PAUSED, Cause.PAUSED)
    assert job.reason == "The pause saved nothing: worker 1 on node-2 was lost: Node node-2 is lost."
    assert job.attempts.get().cause == Cause.NODE_LOST


def test_a_stop_outranks_a_pause_and_a_finished_training_has_finished(now):
    job = make_gang_job(make_lab())
    first, second = run(job, now)
    jobs.pause_job(job_id=job.pk, by=job.owner, now=now)
    jobs.stop_job(job_id=job.pk, by=job.owner, now=now)
    assert [stop.save for stop in stops_of(first)] == [True, False]
    for replica in (first, second):
        end(replica, Cause.PAUSED, later(now, 1), code=75, saved=True, message=SAVED)
    job.refresh_from_db()
    assert job.status == JobStatus.STOPPED

    done = make_gang_job(job.cluster)
    replicas = run(done, now)
    jobs.pause_job(job_id=done.pk, by=done.owner, now=now)
    for replica in replicas:
        end(replica, Cause.COMPLETED, later(now, 1), code=0)
    done.refresh_from_db()
    assert (done.status, done.reason) == (JobStatus.SUCCEEDED, "It had finished before the pause reached it.")


def test_a_stop_that_saves_is_repeated_in_its_own_words_and_given_its_time(now):
    job = make_gang_job(make_lab(nodes=1), workers=1)
    (only,) = run(job, now)
    jobs.pause_job(job_id=job.pk, by=job.owner, now=now)
    Command.objects.filter(replica=only).update(acked_at=now)
    for seconds in (16, 32, 150):
        disagreements.repeat_stops(now=later(now, seconds))
    assert [stop.save for stop in stops_of(only)] == [True] * 4
    only.refresh_from_db()
    assert only.status == "running"


def test_only_its_owner_pauses_a_job_and_only_one_that_runs(now):
    job = make_gang_job(make_lab(nodes=0))
    with pytest.raises(Conflict, match="Only a job that runs can be paused, and this one is submitted"):
        jobs.pause_job(job_id=job.pk, by=job.owner)
    for number, act in enumerate((jobs.pause_job, jobs.resume_job)):
        with pytest.raises(Forbidden):
            act(job_id=job.pk, by=make_user(f"other-{number}"))
    jobs.stop_job(job_id=job.pk, by=job.owner)
    for act, words in ((jobs.pause_job, "has already ended: it was stopped"), (jobs.resume_job, "has ended")):
        with pytest.raises(Conflict, match=words):
            act(job_id=job.pk, by=job.owner)


def test_a_drained_node_pauses_its_jobs_which_go_on_elsewhere(now, enqueued, django_capture_on_commit_callbacks):
    cluster = make_lab(nodes=2)
    job = make_gang_job(cluster, workers=1)
    (only,) = run(job, now)
    script = make_gang_job(cluster, workers=1, kind="script")
    (stays,) = run(script, now)
    assert only.node_name == stays.node_name == "node-1"
    Node.objects.filter(name="node-1").update(state=NodeState.DRAINING.value)
    for _ in range(2):
        draining.pause_jobs(now=now)
    refreshed(job, [only])
    assert (job.status, job.reason, job.requeue) == (JobStatus.PAUSING, "Paused because node-1 is drained.", True)
    assert len(stops_of(only)) == 1
    assert stops_of(stays) == []
    keep(job, 9)
    with django_capture_on_commit_callbacks(execute=True):
        end(only, Cause.PAUSED, later(now, 1), code=75, saved=True, message=SAVED)
    job.refresh_from_db()
    assert (job.status, job.requeue, job.cause) == (JobStatus.SUBMITTED, False, "")
    assert "trainyard.dispatch" in enqueued
    (again,) = launch(job, later(now, 2))
    assert (again.node_name, job.step) == ("node-2", 9)
    draining.cordon_drained_nodes(now=later(now, 3))
    assert Node.objects.get(name="node-1").state == NodeState.DRAINING
    end(stays, Cause.COMPLETED, later(now, 4), code=0)
    draining.cordon_drained_nodes(now=later(now, 5))
    assert Node.objects.get(name="node-1").state == NodeState.CORDONED


def test_who_cannot_save_in_time_for_a_drain_goes_on_elsewhere_and_no_node_is_blamed(now):
    job = make_gang_job(make_lab(nodes=3))
    first, second = run(job, now)
    keep(job, 40)
    Node.objects.filter(name="node-1").update(state=NodeState.DRAINING.value)
    draining.pause_jobs(now=now)
    late = "It had not saved and left 120 s after it was asked to, so it was killed (SIGKILL)."
    end(first, Cause.PAUSED, later(now, 120), signal=9, message=late)
    assert [stop.save for stop in stops_of(second)] == [True, False]
    lose_peer(second, later(now, 121))
    job.refresh_from_db()
    assert job.status == JobStatus.SUBMITTED
    attempt = Attempt.objects.get(job=job)
    assert (attempt.cause, attempt.blame, attempt.failed_on) == (Cause.PAUSED, "", None)
    assert attempt.reason == f"The pause saved nothing: worker 0 on node-1 was paused: {late}"
    assert attempt.reason in job.events.get(kind="job_paused").text


def test_a_person_may_want_what_a_drain_has_begun(now):
    job = make_gang_job(make_lab(), workers=1)
    (only,) = run(job, now)
    Node.objects.filter(name="node-1").update(state=NodeState.DRAINING.value)
    draining.pause_jobs(now=now)
    jobs.pause_job(job_id=job.pk, by=job.owner, now=now)
    end(only, Cause.PAUSED, later(now, 1), code=75, saved=True, message=SAVED)
    job.refresh_from_db()
    assert job.status == JobStatus.PAUSED


def test_what_a_pause_saved_is_waited_for_while_its_node_is_there(now):
    job = make_gang_job(make_lab(), workers=1)
    (only,) = run(job, now)
    jobs.pause_job(job_id=job.pk, by=job.owner, now=now)
    row = keep(job, 9, place="", usable=False)
    Checkpoint.objects.update(created_at=now)
    end(only, Cause.PAUSED, now, code=75, saved=True, message=SAVED)
    job.refresh_from_db()
    assert job.status == JobStatus.PAUSED
    jobs.resume_job(job_id=job.pk, by=job.owner, now=now)
    Node.objects.filter(name="node-1").update(state=NodeState.DRAINING.value)
    reconcile.dispatch_waiting(now=later(now, 300))
    draining.cordon_drained_nodes(now=later(now, 300))
    job.refresh_from_db()
    waits = f"waits for the checkpoint at step {row.step}, which is on its way from its node"
    assert (job.status, job.waiting_for) == (JobStatus.SUBMITTED, waits)
    assert Node.objects.get(name="node-1").state == NodeState.DRAINING
    Node.objects.filter(name="node-1").update(state=NodeState.LOST.value)
    reconcile.dispatch_waiting(now=later(now, 301))
    job.refresh_from_db()
    assert job.status == JobStatus.LAUNCHING
