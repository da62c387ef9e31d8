"""The course of strategy tests: what has ended is measured, and the next run is submitted. The sweep calls `advance`.

A run is an ordinary job: it waits in the queue, survives what jobs survive, and may be looked at and stopped like any.
"""

import logging
from datetime import UTC, datetime

from django.db import transaction
from django.db.models import Q
from msgspec import to_builtins

from orchestrator.domain.lifecycle import TERMINAL_JOB
from orchestrator.domain.strategy_test.measured import Measured
from orchestrator.domain.strategy_test.schedule import next_run
from orchestrator.models import Candidate, Job, Run, StrategyTest, TestStatus, User
from orchestrator.queries import strategy_tests
from orchestrator.queries.measuring import runs
from orchestrator.services import transitions
from orchestrator.services.errors import Conflict, Forbidden
from orchestrator.services.jobs import jobs
from worker_agent.protocol.states import Cause, JobStatus

logger = logging.getLogger(__name__)

OVER = (TestStatus.FINISHED, TestStatus.STOPPED)
# A run that came to the end of its minutes has measured as much as one that took all its steps.
COUNTS = (Cause.COMPLETED, Cause.TIME_LIMIT)


def advance(*, now: datetime) -> None:
    """Every test that goes on, and runs whose end nobody has looked at. One that cannot go on holds up no other."""
    unseen = Run.objects.filter(is_over=False).values("candidate__test")
    going_on = StrategyTest.objects.filter(Q(status=TestStatus.RUNNING.value) | Q(pk__in=unseen))
    for test_id in going_on.order_by("pk").values_list("pk", flat=True):
        try:
            with transaction.atomic():
                _advance(StrategyTest.objects.select_for_update().get(pk=test_id), now)
        except Exception:
            logger.exception("strategy test %s could not go on and is tried again next time", test_id)


def stop(*, test_id: int, by: User, now: datetime | None = None) -> StrategyTest:
    """End the run that is under way, and the test; what was measured stays."""
    with transaction.atomic():
        test = changeable(test_id, by)
        if test.status in OVER:
            raise Conflict(f"The test is over already: it is {test.status}.")
        _set(test, TestStatus.STOPPED, by, "stopped", ended_at=now or datetime.now(UTC))
        for job_id in _jobs_under_way(test):
            jobs.stop_job(job_id=job_id, by=by)
    return test


def pause(*, test_id: int, by: User) -> StrategyTest:
    """Begin no further run; the one that is under way comes to its end."""
    test = changeable(test_id, by)
    if test.status != TestStatus.RUNNING:
        raise Conflict(f"Only a test that runs can be paused, and this one is {test.status}.")
    return _set(test, TestStatus.PAUSED, by, "paused")


def resume(*, test_id: int, by: User) -> StrategyTest:
    """Go on with what is paused or was stopped."""
    test = changeable(test_id, by)
    if test.status not in (TestStatus.PAUSED, TestStatus.STOPPED):
        raise Conflict(f"Only a test that is paused or stopped can go on, and this one is {test.status}.")
    return _set(test, TestStatus.RUNNING, by, "resumed", ended_at=None)


def withdraw(*, test_id: int, place: int, by: User) -> None:
    """Run a candidate no more; what it measured stays."""
    test = changeable(test_id, by)
    if not test.candidates.filter(place=place).update(withdrawn=True):
        raise Conflict(f"The test has no candidate {place}.")


def delete(*, test_id: int, by: User) -> None:
    """Forget a test that is over; the jobs that it ran stay."""
    test = changeable(test_id, by)
    if test.status not in OVER or _jobs_under_way(test):
        raise Conflict("The test is not over: stop it first.")
    text = f"{by.username} deleted {test}."
    test.delete()
    transitions.record(kind="strategy_test", text=text, actor=by)


def changeable(test_id: int, by: User) -> StrategyTest:
    """The test, if this person may change it."""
    test = strategy_tests.get(by, test_id)
    if not test.may_be_changed_by(by):
        raise Forbidden("Only its owner or an administrator may change this strategy test.")
    return test


def _advance(test: StrategyTest, now: datetime) -> None:
    for run in Run.objects.filter(candidate__test=test, is_over=False).select_related("job", "candidate"):
        if run.job is not None and JobStatus(run.job.status) not in TERMINAL_JOB:
            return
        _settle(run, test)
    if test.status != TestStatus.RUNNING:
        return
    place = next_run(
        strategy_tests.contenders(test),
        rounds=test.rounds,
        until_target=bool(test.target_metric),
    )
    if place is None:
        _set(test, TestStatus.FINISHED, None, "finished", ended_at=now)
        return
    _submit(test, test.candidates.get(place=place))


def _submit(test: StrategyTest, candidate: Candidate) -> None:
    number = candidate.runs.count() + 1
    spec = candidate.typed_spec
    job = jobs.submit_spec(
        spec=spec,
        cluster=test.cluster,
        program=test.code,
        by=test.owner,
        how=f"as run {number} of {candidate.label} in {test}",
    )
    Run.objects.create(candidate=candidate, job=job)


def _settle(run: Run, test: StrategyTest) -> None:
    job = run.job
    measured = _measured(job, test) if job and job.cause in COUNTS else None
    run.is_over = True
    run.measured = to_builtins(measured) if measured else None
    run.reason = "" if measured else _why_not(job)
    run.save(update_fields=["is_over", "measured", "reason"])


def _measured(job: Job, test: StrategyTest) -> Measured | None:
    return runs.measure(job, target_metric=test.target_metric, target_value=test.target_value)


def _why_not(job: Job | None) -> str:
    if job is None:
        return "Its job was deleted before it ended."
    if job.cause in COUNTS:
        return "It took too few steps to be measured: give it more samples or minutes."
    return job.reason or f"Its job {job.status}."


def _jobs_under_way(test: StrategyTest) -> list[int]:
    under_way = Run.objects.filter(candidate__test=test, is_over=False, job__isnull=False).exclude(
        job__status__in=TERMINAL_JOB
    )
    return list(under_way.values_list("job", flat=True))


def _set(test: StrategyTest, to: TestStatus, by: User | None, word: str, **columns: object) -> StrategyTest:
    for name, value in columns.items():
        setattr(test, name, value)
    test.status = to.value
    test.save(update_fields=["status", *columns])
    text = f"{by.username} {word} {test}." if by else f"{test} is {word}."
    transitions.record(kind="strategy_test", text=text, actor=by)
    return test
