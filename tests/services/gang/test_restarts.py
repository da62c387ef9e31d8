"""Restarts from what nodes say: from which step, when, where, and what the ledger says of them."""

import pytest

from orchestrator.domain.gang.decisions import End
from orchestrator.models import Attempt, Job, Node, Replica
from orchestrator.queries import restarts
from orchestrator.services import fencing
from orchestrator.services.gang import gang, pausing
from orchestrator.services.jobs import dispatch, jobs
from orchestrator.services.nodes.cluster_snapshot import cluster_view
from tests.services.gang.gangs import acknowledge, end, keep, later, launch, make_gang_job, make_lab, refreshed, run
from worker_agent.protocol.states import Cause, JobStatus, Kind, NodeState

CRASH = "ValueError: bad shape"


def reach(job, step):
    Job.objects.filter(pk=job.pk).update(step=step)


def tell_steps(now, *replicas):
    Replica.objects.filter(pk__in=[each.pk for each in replicas]).update(stepped_at=now)


def train(job, replicas, now):
    for replica in replicas:
        acknowledge(replica, now)
        gang.on_phase(replica=replica, phase="training", now=now)
    return refreshed(job, replicas)


def test_a_lost_machine_costs_the_steps_since_the_checkpoint_and_goes_on_elsewhere(now):
    job = make_gang_job(make_lab(nodes=3))
    first, second = run(job, now)
    keep(job, 40)
    reach(job, 57)
    tell_steps(later(now, 3), first, second)
    Node.objects.filter(pk=second.node_id).update(state=NodeState.LOST.value)
    gang.on_lost(replica=second, reason="Node node-2 is lost.", now=later(now, 11))
    job.refresh_from_db()
    assert job.status == JobStatus.RESTARTING
    end(first, Cause.STOPPED, later(now, 12), signal=15)
    job.refresh_from_db()
    (waiting,) = restarts.of_job(job)
    assert (waiting.step_resumed, waiting.steps_lost, waiting.seconds_lost) == (None, None, None)
    replicas = launch(job, later(now, 13))
    assert {replica.node_name for replica in replicas} == {"node-1", "node-3"}
    train(job, replicas, later(now, 31))
    (row,) = restarts.of_job(job)
    assert (row.attempt, row.cause, row.counted, row.node) == (1, Cause.NODE_LOST, False, "node-2")
    assert (row.step_reached, row.step_resumed, row.steps_lost) == (57, 40, 17)
    assert (row.failed_at, row.running_at) == (later(now, 11), later(now, 31))
    assert (row.lost_since, row.seconds_lost) == (later(now, 3), 28.0)
    tell_steps(later(now, 14), first)
    assert restarts.of_job(job)[0].lost_since == row.failed_at, "a step that was heard of after the failure"
    assert row.reason == "worker 1 on node-2 was lost: Node node-2 is lost."


def test_a_launch_that_is_never_at_work_loses_time_together_with_the_one_before_it(now):
    job = make_gang_job(make_lab(nodes=1), workers=1)
    (first,) = run(job, now)
    tell_steps(later(now, 5), first)
    end(first, Cause.AGENT_SHUTDOWN, later(now, 10))
    (second,) = launch(job, later(now, 20))
    end(second, Cause.AGENT_SHUTDOWN, later(now, 30))
    third = launch(job, later(now, 40))
    train(job, third, later(now, 45))
    assert [(row.lost_since, row.seconds_lost) for row in restarts.of_job(job)] == [
        (later(now, 5), None),
        (later(now, 5), 40.0),
    ]


@pytest.mark.parametrize(("kind", "since_s"), [(Kind.RECIPE, 0), (Kind.SCRIPT, 60)])
def test_who_told_no_step_loses_the_time_at_work_but_scripts_may_have_done_anything(now, kind, since_s):
    job = make_gang_job(make_lab(nodes=1), workers=1, kind=kind)
    (only,) = run(job, now)
    end(only, Cause.AGENT_SHUTDOWN, later(now, 60))
    train(job, launch(job, later(now, 61)), later(now, 65))
    assert [(row.lost_since, row.seconds_lost) for row in restarts.of_job(job)] == [
        (later(now, since_s), 65.0 - since_s)
    ]


@pytest.mark.parametrize("requeue", [False, True])
def test_only_a_pause_that_a_person_ended_loses_no_time(now, requeue):
    job = make_gang_job(make_lab(nodes=1), workers=1)
    (only,) = run(job, now)
    tell_steps(later(now, 5), only)
    pausing.begin(job=job, reason="Paused by ada.", now=later(now, 6), requeue=requeue)
    end(only, Cause.PAUSED, later(now, 7), code=75, saved=True)
    if not requeue:
        jobs.resume_job(job_id=job.pk, by=job.owner, now=later(now, 3600))
    job.refresh_from_db()
    train(job, launch(job, later(now, 3600)), later(now, 3604))
    assert [(row.lost_since, row.running_at, row.seconds_lost) for row in restarts.of_job(job)] == [
        (later(now, 5) if requeue else None, later(now, 3604), 3599.0 if requeue else None)
    ]


def test_a_killed_process_is_no_failure_of_the_program(now):
    job = make_gang_job(make_lab())
    first, second = run(job, now)
    end(second, Cause.SIGNAL, now, signal=9, message="The process was killed by signal 9 (SIGKILL).")
    job.refresh_from_db()
    reason = "worker 1 on node-2 was killed by signal 9 (SIGKILL)."
    assert (job.status, job.reason) == (JobStatus.RESTARTING, reason)
    assert job.events.filter(text="So the rest is ended and the job launched again.").exists()
    end(first, Cause.STOPPED, later(now, 1), signal=15)
    assert len(launch(job, later(now, 1))) == 2
    (row,) = restarts.of_job(job)
    assert (row.cause, row.counted, row.reason) == (Cause.SIGNAL, False, reason)


def test_the_sentence_of_a_failure_stands_once_in_the_history(now):
    job, killed = make_gang_job(make_lab()), "worker 1 on node-2 was killed by signal 9 (SIGKILL)"
    for moment in (0, 60):
        first, second = run(job, later(now, moment))
        end(second, Cause.SIGNAL, later(now, moment), signal=9, message="The process was killed.")
        end(first, Cause.STOPPED, later(now, moment), message=f"{killed}.")
    ends = job.events.exclude(kind__in=("job_launching", "replica_started", "job_running"))
    once = [f"{killed}.", "So the rest is ended and the job launched again.", "worker 0 on node-1 was stopped."]
    again = [f"{killed} again, as in attempt 1.", *once[1:]]
    assert [
        text for text in ends.order_by("pk").values_list("text", flat=True) if "worker" in text or "So" in text
    ] == [
        *once,
        *again,
    ]


def test_our_sentence_stands_before_the_last_lines_and_only_what_is_left_is_ended(now):
    job = make_gang_job(make_lab(nodes=1), workers=1, max_restarts=1)
    lines = " The last lines it wrote:\ngoodbye"
    for moment in (0, 60):
        (only,) = run(job, later(now, moment))
        end(only, Cause.EXIT_CODE, later(now, moment), code=3, last_lines="goodbye")
    job.refresh_from_db()
    reason = "worker 0 on node-1 ended with exit code 3."
    assert job.reason == f"{reason} It has been launched again once, as often as the job allows.{lines}"
    assert job.events.get(kind="job_restarting").text == "So the job is launched again."
    assert [each.text for each in job.events.filter(kind="replica_failed")] == [
        f"{reason}{lines}",
        "worker 0 on node-1 ended with exit code 3 again, as in attempt 1.",
    ]


def test_a_job_of_one_process_has_no_rest(now):
    job = make_gang_job(make_lab(nodes=1), workers=1)
    run(job, now)
    gang.end_attempt(job=job, end=End(Cause.TIME_LIMIT, "It took too long."), now=now)
    assert job.events.get(kind="job_stopping").text == "It took too long. So it is ended."


def test_what_a_job_waits_for_may_be_several(now):
    job = make_gang_job(make_lab())
    for replica in run(job, now):
        gang.on_lost(replica=replica, reason="Its node is lost.", now=now, held=True)
    assert fencing.waits_for(job).startswith(
        "waits until worker 0 on node-1 and worker 1 on node-2 have ended for sure: a process ends itself"
    )


def test_points_that_come_after_the_end_count_for_the_launch_that_took_them(now):
    job = make_gang_job(make_lab(nodes=1), workers=1)
    (only,) = run(job, now)
    end(only, Cause.AGENT_SHUTDOWN, now)
    reach(job, 80)
    launch(job, now)
    assert [row.step_reached for row in restarts.of_job(job)] == [80]


def test_a_program_that_fails_is_tried_again_after_a_while(now, enqueued):
    job = make_gang_job(make_lab(nodes=1), workers=1, max_restarts=1)
    (only,) = run(job, now)
    reach(job, 5)
    end(only, Cause.EXCEPTION, now, code=1, message=CRASH)
    job.refresh_from_db()
    assert job.status == JobStatus.SUBMITTED
    assert job.waiting_for == "waits until 12:00:10 UTC before it is launched again (restart 1 of 1)"
    assert not dispatch.dispatch_job(job_id=job.pk, now=later(now, 9))
    assert dispatch.dispatch_waiting(now=later(now, 10)) == 1
    job.refresh_from_db()
    assert (job.status, job.waiting_for, job.not_before) == (JobStatus.LAUNCHING, "", None)
    assert [row.counted for row in restarts.of_job(job)] == [True]
    (again,) = job.replicas.filter(attempt=2)
    train(job, [again], later(now, 20))
    reach(job, 9)
    end(again, Cause.EXCEPTION, later(now, 30), code=1, message=CRASH)
    job.refresh_from_db()
    assert job.status == JobStatus.FAILED
    assert job.reason.endswith(f"{CRASH}. It has been launched again once, as often as the job allows.")


def test_the_same_exception_at_the_same_step_is_not_tried_a_third_time(now):
    job = make_gang_job(make_lab(nodes=2), workers=1, max_restarts=100)
    for moment in (0, 60):
        (only,) = run(job, later(now, moment))
        reach(job, 57)
        end(only, Cause.EXCEPTION, later(now, moment), code=1, message=CRASH)
    job.refresh_from_db()
    assert (job.status, job.cause) == (JobStatus.FAILED, Cause.EXCEPTION)
    assert "The same exception at the same step (57) as in attempt 1" in job.reason
    assert len(restarts.of_job(job)) == 1


def test_a_stop_while_it_waits_to_try_again_is_final(now):
    job = make_gang_job(make_lab(nodes=1), workers=1, max_restarts=3)
    (only,) = run(job, now)
    end(only, Cause.OUT_OF_MEMORY, now, signal=9)
    job.refresh_from_db()
    jobs.stop_job(job_id=job.pk, by=job.owner, now=now)
    assert dispatch.dispatch_waiting(now=later(now, 600)) == 0
    job.refresh_from_db()
    assert (job.status, job.cause) == (JobStatus.STOPPED, Cause.STOPPED)


@pytest.mark.parametrize(("ago_s", "failures", "avoided"), [(60, 3, True), (60, 2, False), (3700, 3, False)])
def test_a_node_that_keeps_failing_is_avoided_for_an_hour(now, ago_s, failures, avoided):
    cluster = make_lab(nodes=2)
    failing = cluster.nodes.get(name="node-1")
    job = make_gang_job(cluster, workers=1)
    for number in range(1, failures + 1):
        Attempt.objects.create(
            job=make_gang_job(cluster, workers=1),
            number=number,
            started_at=now,
            ended_at=later(now, -ago_s),
            cause=Cause.SIGNAL.value,
            blame="machine",
            failed_on=failing,
        )
    assert [node.avoided for node in cluster_view(cluster, now=now).nodes] == [avoided, False]
    (replica,) = launch(job, now)
    assert replica.node_name == ("node-2" if avoided else "node-1")


def test_shutdowns_and_programs_are_not_held_against_a_node(now):
    job = make_gang_job(make_lab(nodes=1), workers=1, max_restarts=9)
    for number, (cause, signal) in enumerate(
        [(Cause.AGENT_SHUTDOWN, None), (Cause.AGENT_SHUTDOWN, None), (Cause.AGENT_SHUTDOWN, None), (Cause.SIGNAL, 11)]
    ):
        (only,) = run(job, later(now, number))
        end(only, cause, later(now, number), signal=signal)
    assert not any(node.avoided for node in cluster_view(job.cluster, now=later(now, 300)).nodes)
