"""A gang that hangs, as the sweep finds it: ended with its stacks, launched again once; left alone when in doubt."""

from datetime import timedelta

import pytest

from orchestrator.models import Command, Job, Node, Replica
from orchestrator.queries import restarts
from orchestrator.services.gang import gang, hangs, watch
from tests.services.gang.gangs import end, later, launch, make_gang_job, make_lab, refreshed, run
from worker_agent.protocol.codec import decode_command
from worker_agent.protocol.states import Cause, JobStatus, Kind, ReplicaStatus, Strategy

SUSPENDED = "the process was suspended by a signal (state T)."


class Clock:
    """The sweep's own."""

    now = 0.0


@pytest.fixture(autouse=True)
def _limits(settings, monkeypatch):
    settings.HANG_AFTER_S, settings.HANG_PHASE_S = 60, 600
    monkeypatch.setattr(hangs, "HEARD", watch.Watch())
    monkeypatch.setattr(watch, "monotonic", lambda: Clock.now)


def sweep(job, moment, *, heard=True, listening_s=1e6, heard_s=1e6):
    """The sweep's step, at a moment at which the nodes were just heard of, and had been for `heard_s`."""
    if heard:
        Node.objects.update(last_seen_at=moment)
        hangs.heard_for({str(pk) for pk in Node.objects.values_list("pk", flat=True)})
        Clock.now += heard_s
    hangs.stop_hung(listening_since=moment - timedelta(seconds=listening_s), now=moment)
    job.refresh_from_db()


def step(replica, number, at):
    Replica.objects.filter(pk=replica.pk).update(step=number, moved_at=at)


def training(now, **more):
    """A gang of which each process has made 57 steps."""
    job = make_gang_job(make_lab(), **more)
    replicas = run(job, now)
    for replica in replicas:
        step(replica, 57, now)
    Job.objects.filter(pk=job.pk).update(step=57, total_steps=100)
    return job, refreshed(job, replicas)


def stops(replica):
    return [decode_command(bytes(row.body)) for row in Command.objects.filter(replica=replica, kind="stop")]


def test_every_process_is_asked_for_its_stacks_and_ended(now):
    job, replicas = training(now)
    sweep(job, later(now, 60))
    assert job.status == JobStatus.RUNNING
    sweep(job, later(now, 61))
    reason = "None of 2 processes has taken a step for 61 s (the last was step 57); 60 s are allowed."
    assert (job.status, job.cause, job.reason) == (JobStatus.RESTARTING, Cause.HUNG, reason)
    for replica in replicas:
        (stop,) = stops(replica)
        assert (stop.stacks, stop.cause, stop.reason) == (True, Cause.HUNG, reason)
    assert job.events.filter(
        text=f"{reason} So the stacks of all its processes are saved, and the processes are ended."
    ).exists()
    sweep(job, later(now, 63))
    assert all(len(stops(replica)) == 1 for replica in replicas)


def test_it_is_launched_again_once_and_says_who_it_was(now):
    job, (first, second) = training(now)
    sweep(job, later(now, 61))
    reason = job.reason
    end(first, Cause.HUNG, later(now, 62), code=143, message=reason)
    end(second, Cause.HUNG, later(now, 67), signal=9, message=f"{reason} Killed.", kernel_saw=SUSPENDED)
    job.refresh_from_db()
    assert job.status == JobStatus.SUBMITTED
    replicas = launch(job, later(now, 68))
    (row,) = restarts.of_job(job)
    assert (row.cause, row.counted, row.node) == (Cause.HUNG, False, "node-2")
    assert row.reason == f"{reason} worker 1 on node-2: {SUSPENDED}"
    assert {replica.attempt for replica in replicas} == {2}


def test_the_second_time_ends_the_job(now):
    job, replicas = training(now)
    for launched in (1, 2):
        moment = later(now, 100 * launched)
        sweep(job, moment)
        assert (job.attempt, job.status) == (launched, JobStatus.RESTARTING)
        for replica in replicas:
            end(replica, Cause.HUNG, moment, code=143, message=job.reason)
        job.refresh_from_db()
        if launched == 1:
            replicas = run(job, moment)
            for replica in replicas:
                step(replica, 70, moment)
    assert (job.status, job.cause) == (JobStatus.FAILED, Cause.HUNG)
    assert job.reason.endswith("The same happened in attempt 1.")
    assert job.attempts.get(number=2).failed_on is None


def test_slow_but_moving_is_not_hung(now):
    job, replicas = training(now)
    for number in range(58, 68):
        moment = later(now, (number - 57) * 50)
        for replica in replicas:
            step(replica, number, moment)
        sweep(job, later(moment, 49))
    assert job.status == JobStatus.RUNNING


def test_a_step_may_take_three_times_the_longest(now):
    job, (first, _) = training(now)
    Replica.objects.filter(pk=first.pk).update(facts={"longest_pause_s": 50.0})
    sweep(job, later(now, 149))
    assert job.status == JobStatus.RUNNING
    sweep(job, later(now, 151))
    assert job.cause == Cause.HUNG


def test_a_process_that_validates_has_more_time(now):
    job, (first, _) = training(now)
    gang.on_phase(replica=first, phase="validating", now=later(now, 5))
    sweep(job, later(now, 590))
    assert job.status == JobStatus.RUNNING
    gang.on_phase(replica=first, phase="training", now=later(now, 591))
    sweep(job, later(now, 592))
    assert job.status == JobStatus.RESTARTING
    assert job.reason.startswith("worker 1 on node-2 has taken no step for 592 s")


def test_a_gang_that_never_gets_to_its_first_step(now):
    job = make_gang_job(make_lab())
    replicas = launch(job, now)
    for replica in replicas:
        gang.on_started(replica=replica, pid=replica.pk, warm=True, now=now)
        gang.on_phase(replica=replica, phase="building", now=later(now, 10))
    sweep(job, later(now, 609))
    assert job.status == JobStatus.LAUNCHING
    sweep(job, later(now, 611))
    assert (job.status, job.cause) == (JobStatus.RESTARTING, Cause.HUNG)
    assert '(none yet; it says "building")' in job.reason


@pytest.mark.parametrize("doubt", ["a node is silent", "ingest was away", "nobody looks"])
def test_in_doubt_nothing_is_ended(doubt, now, settings):
    job, _ = training(now)
    if doubt == "nobody looks":
        settings.HANG_AFTER_S = 0
    if doubt == "a node is silent":
        Node.objects.update(last_seen_at=later(now, 100) - hangs.HEARD_WITHIN - timedelta(seconds=1))
    sweep(
        job, later(now, 100), heard=doubt != "a node is silent", listening_s=30 if doubt == "ingest was away" else 1e6
    )
    assert job.status == JobStatus.RUNNING


def test_unless_it_is_set_the_limit_follows_the_steps(now, settings):
    settings.HANG_AFTER_S = None
    job, replicas = training(now)
    sweep(job, later(now, 299))
    assert job.status == JobStatus.RUNNING
    for replica in replicas:
        Replica.objects.filter(pk=replica.pk).update(facts={"longest_step_s": 0.2})
    sweep(job, later(now, 120))
    assert job.status == JobStatus.RUNNING
    sweep(job, later(now, 121))
    assert job.reason.endswith("; 120 s are allowed.")


def test_a_node_that_was_out_of_touch_has_its_time_anew(now):
    """What its processes said meanwhile comes after its first heartbeat; and a machine may have been suspended."""
    job, _ = training(now)
    sweep(job, later(now, 7200), heard_s=60)
    assert job.status == JobStatus.RUNNING
    Node.objects.filter(name="node-2").update(last_seen_at=later(now, 7200))
    sweep(job, later(now, 7230), heard=False)
    sweep(job, later(now, 7240), heard_s=60)
    assert job.status == JobStatus.RUNNING
    sweep(job, later(now, 7250), heard_s=1)
    assert job.cause == Cause.HUNG


def test_while_a_part_of_the_gang_begins_anew_the_others_may_wait_for_it(now):
    job = make_gang_job(make_lab(), strategy=Strategy.PARAMETER_SERVER, ps=1, workers=1)
    replicas = {str(replica): replica for replica in run(job, now)}
    step(replicas["chief:0"], 5, now)
    end(replicas["worker:0"], Cause.SIGNAL, later(now, 1), signal=9)
    sweep(job, later(now, 500))
    assert job.status == JobStatus.RUNNING
    sweep(job, later(now, 601))
    assert job.cause == Cause.HUNG


def test_a_node_that_is_not_lost_yet_is_no_hang(now, settings):
    settings.HANG_AFTER_S, settings.NODE_LOST_AFTER_S = 5, 30
    job, _ = training(now)
    sweep(job, later(now, 29))
    assert job.status == JobStatus.RUNNING


def test_under_parameter_servers_the_chief_is_looked_at(now):
    job = make_gang_job(make_lab(), strategy=Strategy.PARAMETER_SERVER, ps=1)
    replicas = {str(replica): replica for replica in run(job, now)}
    for name, replica in replicas.items():
        if name != "chief:0":
            gang.on_phase(replica=replica, phase="serving", now=now)
    step(replicas["chief:0"], 5, later(now, 500))
    sweep(job, later(now, 510))
    assert job.status == JobStatus.RUNNING
    sweep(job, later(now, 561))
    assert job.reason.startswith("chief 0 on ")


def test_a_process_that_was_replaced_counts_no_more(now):
    job, (first, second) = training(now)
    Replica.objects.filter(pk=second.pk).update(superseded=True)
    step(first, 90, later(now, 200))
    sweep(job, later(now, 210))
    assert job.status == JobStatus.RUNNING
    assert first.status == ReplicaStatus.RUNNING


@pytest.mark.parametrize(("phase", "hung"), [("training", False), ("stepping", True)])
def test_a_script_is_judged_only_at_its_steps(phase, hung, now):
    job, replicas = training(now, kind=Kind.SCRIPT)
    for replica in replicas:
        gang.on_phase(replica=replica, phase=phase, now=now)
    sweep(job, later(now, 1000))
    assert (job.cause == Cause.HUNG) is hung
