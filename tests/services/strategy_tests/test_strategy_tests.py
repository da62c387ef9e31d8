"""The life of a strategy test: what is asked, what runs next, what it comes to."""

from datetime import UTC, datetime, timedelta
from itertools import count

import pytest

from orchestrator import series
from orchestrator.models import Event, Job, Run, StrategyTest, User
from orchestrator.queries import strategy_tests
from orchestrator.queries.errors import NotFound
from orchestrator.services.errors import Conflict, Forbidden, Invalid
from orchestrator.services.strategy_tests import creating, running
from tests.factories import make_replica, make_user
from tests.services.gang.gangs import make_lab
from worker_agent.protocol.states import Cause, JobStatus, ReplicaStatus

pytestmark = pytest.mark.django_db

NOW = datetime.now(UTC)
ONE, PAIR = {"strategy": "one_device"}, {"strategy": "multi_worker_mirrored", "workers": 2}


def asked(cluster, **fields):
    job = {"name": "digits", "cluster": cluster.name, "recipe": "digits_mlp", "global_batch_size": 128}
    return {"job": job, "candidates": [ONE, PAIR], "repeats": 1} | fields


@pytest.fixture
def test(member: User) -> StrategyTest:
    return creating.create(asked=asked(make_lab()), by=member)


def end_run(rate: float, *, cause: Cause = Cause.COMPLETED, **columns: object) -> Job:
    """The job that is under way comes to its end, at so many steps a second."""
    job = Run.objects.get(is_over=False).job
    assert job is not None
    leader = make_replica(job, status=ReplicaStatus.EXITED, facts={"steps_per_epoch": 100}, started_at=NOW)
    steps = list(range(1, 101))
    times = [NOW.timestamp() + step / rate for step in steps]
    series.append([series.Addition(series.Owner(replica_id=leader.pk), "loss", series.curve_of(steps, times, times))])
    status = JobStatus.SUCCEEDED if cause is Cause.COMPLETED else JobStatus.FAILED
    values = {"status": status.value, "cause": cause.value, "attempt": 1, "ended_at": NOW + timedelta(seconds=60)}
    Job.objects.filter(pk=job.pk).update(**values, **columns)
    return job


def go_on(test: StrategyTest) -> StrategyTest:
    running.advance(now=NOW)
    return strategy_tests.get(test.owner, test.pk)


def test_it_runs_each_candidate_in_turn_and_names_the_winner(test: StrategyTest) -> None:
    test = go_on(test)
    assert [run.job.strategy for run in Run.objects.all()] == ["one_device"]
    assert go_on(test).candidates.get(place=1).runs.count() == 0  # one at a time
    end_run(10.0, metrics={"val_accuracy": 0.9})
    go_on(test)
    end_run(4.0)
    test = go_on(test)
    assert (test.status, test.ended_at) == ("finished", NOW)
    report = strategy_tests.report(test)
    assert [(each.status, round(each.rate.median), each.efficiency) for each in report.candidates] == [
        ("measured", 1280, 1.0),
        ("beaten", 512, pytest.approx(0.2)),
    ]
    assert report.candidates[0].epoch_s == pytest.approx(10.0)
    assert report.candidates[0].last.final == {"val_accuracy": 0.9}
    assert report.verdict.is_sure
    assert report.verdict.sentence.startswith("One device is 2.50 × as fast as MultiWorkerMirrored, 2 workers")


def test_its_jobs_are_ordinary_jobs_that_say_what_they_are_for(test: StrategyTest) -> None:
    go_on(test)
    job = Job.objects.get()
    assert (job.name, job.status, job.owner) == ("digits", "submitted", test.owner)
    assert job.spec["time_limit_s"] == 180
    assert strategy_tests.of_job(job) == test
    said = Event.objects.filter(job=job).first()
    assert said.text == f"Submitted by {test.owner.username} as run 1 of One device in {test}."


def test_samples_become_steps_of_each_candidates_own_batch(member: User) -> None:
    smaller = PAIR | {"accumulation": 2}
    test = creating.create(asked=asked(make_lab(), samples=1000, candidates=[ONE, smaller], minutes=2), by=member)
    assert [(row.spec["max_steps"], row.spec["time_limit_s"]) for row in test.candidates.all()] == [(8, 120)] * 2


def test_what_failed_is_a_row_with_its_reason_and_the_others_go_on(test: StrategyTest) -> None:
    go_on(test)
    end_run(10.0, cause=Cause.OUT_OF_MEMORY, reason="Worker 0 ran out of memory.")
    go_on(test)
    end_run(10.0, cause=Cause.TIME_LIMIT)  # its minutes are over: that is a measurement
    report = strategy_tests.report(go_on(test))
    assert [(each.status, each.reason) for each in report.candidates] == [
        ("failed", "Worker 0 ran out of memory."),
        ("measured", ""),
    ]
    assert report.verdict.sentence.startswith("Only MultiWorkerMirrored, 2 workers was measured")


def test_a_run_whose_job_was_deleted_failed(test: StrategyTest) -> None:
    go_on(test)
    Job.objects.all().delete()
    report = strategy_tests.report(go_on(test))
    assert report.candidates[0].reason == "Its job was deleted before it ended."
    assert Run.objects.filter(is_over=False).count() == 1


def test_a_run_of_too_few_steps_says_so(test: StrategyTest) -> None:
    go_on(test)
    Job.objects.update(status=JobStatus.SUCCEEDED.value, cause=Cause.COMPLETED.value, ended_at=NOW, attempt=1)
    report = strategy_tests.report(go_on(test))
    assert report.candidates[0].reason.startswith("It took too few steps to be measured")


def test_it_is_paused_resumed_stopped_and_deleted(test: StrategyTest) -> None:
    owner = test.owner
    go_on(test)
    running.pause(test_id=test.pk, by=owner)
    end_run(10.0)
    assert go_on(test).status == "paused"
    assert Run.objects.filter(is_over=False).count() == 0  # what ended meanwhile was measured
    running.resume(test_id=test.pk, by=owner)
    go_on(test)
    assert Run.objects.filter(is_over=False).count() == 1
    with pytest.raises(Conflict, match="stop it first"):
        running.delete(test_id=test.pk, by=owner)
    running.stop(test_id=test.pk, by=owner)
    assert Job.objects.latest("pk").status == JobStatus.STOPPED
    test = go_on(test)
    assert (test.status, Run.objects.filter(is_over=False).count()) == ("stopped", 0)
    with pytest.raises(Conflict, match="over already"):
        running.stop(test_id=test.pk, by=owner)
    running.delete(test_id=test.pk, by=owner)
    assert Job.objects.count() == 2
    with pytest.raises(NotFound):
        strategy_tests.get(owner, test.pk)


def test_it_is_extended_and_made_again(test: StrategyTest) -> None:
    for rate in (10.0, 4.0):
        go_on(test)
        end_run(rate)
    assert go_on(test).status == "finished"
    creating.extend(test_id=test.pk, layout={"strategy": "mirrored", "devices_per_worker": 2}, by=test.owner)
    go_on(test)
    assert Run.objects.get(is_over=False).job.strategy == "mirrored"
    with pytest.raises(Conflict, match="has this candidate already"):
        creating.extend(test_id=test.pk, layout=PAIR, by=test.owner)
    other = creating.again(test_id=test.pk, by=test.owner)
    assert [row.layout for row in other.candidates.all()] == [
        ONE,
        PAIR,
        {"strategy": "mirrored", "devices_per_worker": 2},
    ]


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"candidates": []}, {"candidates": "1 to 20 of them"}),
        ({"candidates": [ONE, ONE]}, {"candidates": "two are the same: leave one out"}),
        ({"candidates": [ONE | {"workers": "many"}]}, {"candidates.0.workers": None}),
        ({"candidates": [{"strategy": "best"}]}, {"candidates.0.strategy": None}),
        ({"candidates": 3}, {"candidates": None}),
        ({"minutes": 0}, {"minutes": None}),
        ({"minutes": "long"}, {"minutes": None}),
        ({"repeats": 11}, {"repeats": None}),
        ({"samples": -1}, {"samples": None}),
        ({"target": {"metric": "val_loss"}}, {"target": None}),
        ({"target": {"metric": "val_loss", "value": float("nan")}}, {"target": None}),
        ({"name": "x" * 101}, {"name": None}),
        ({"job": {"cluster": "nowhere"}}, {"job.cluster": None, "job.recipe": None, "job.name": None}),
    ],
)
def test_what_is_wrong_is_said_at_its_field(fields: dict, wrong: dict, member: User) -> None:
    with pytest.raises(Invalid) as refused:
        creating.create(asked=asked(make_lab()) | fields, by=member)
    said = {error.field: error.message for error in refused.value.errors}
    assert said.keys() >= wrong.keys(), said
    assert all(message is None or said[name] == message for name, message in wrong.items())
    assert not StrategyTest.objects.exists()


def test_only_its_owner_and_administrators_change_it(test: StrategyTest, viewer: User) -> None:
    with pytest.raises(Forbidden):
        creating.create(asked=asked(test.cluster), by=viewer)
    for act in (running.stop, running.pause, running.delete):
        with pytest.raises(Forbidden):
            act(test_id=test.pk, by=make_user())


def test_one_that_cannot_go_on_holds_up_no_other(test: StrategyTest, member: User, monkeypatch) -> None:
    other = creating.create(asked=asked(test.cluster), by=member)
    turn = count()
    whole = running._advance
    monkeypatch.setattr(running, "_advance", lambda *given: 1 / 0 if next(turn) == 0 else whole(*given))
    running.advance(now=NOW)
    assert Run.objects.get().candidate.test == other


def test_tests_are_listed_by_page(member: User) -> None:
    cluster = make_lab()
    made = [creating.create(asked=asked(cluster), by=member).pk for _ in range(3)]
    found, cursor = strategy_tests.page(member, limit=2)
    assert ([each.pk for each in found], cursor) == (made[:0:-1], made[1])
    found, cursor = strategy_tests.page(member, before=cursor, limit=2)
    assert ([each.pk for each in found], cursor) == (made[:1], None)


@pytest.mark.parametrize(("told", "rate"), [({}, 10.0), ({"examples_per_s": 640.0}, 640.0)])
def test_a_script_is_measured_by_what_it_tells_else_by_its_steps(member: User, told: dict, rate: float) -> None:
    cluster = make_lab()
    job = {"name": "own", "kind": "script", "cluster": cluster.name, "code": {"filename": "a.py", "text": "print(1)"}}
    test = creating.create(asked={"job": job, "candidates": [ONE], "repeats": 1, "samples": 1000}, by=member)
    assert test.candidates.get().spec["max_steps"] == 0  # only its minutes end it
    go_on(test)
    replica = end_run(10.0).replicas.get()
    for name, value in told.items():
        curve = series.curve_of([1, 2], [1.0, 2.0], [value, value])
        series.append([series.Addition(series.Owner(replica_id=replica.pk), name, curve)])
    [view] = strategy_tests.report(go_on(test)).candidates
    assert view.rate.median == pytest.approx(rate)
