"""Submitting, stopping in every state, retrying, reading a request back; by owner, teammate, viewer, administrator."""

import pytest

from orchestrator.models import Command, Event, Job
from orchestrator.queries.errors import NotFound
from orchestrator.services.errors import Conflict, Forbidden, Invalid
from orchestrator.services.jobs import jobs, submission
from tests.factories import RECIPE, make_job
from tests.services.gang.gangs import end, launch, make_gang_job, make_lab, run
from worker_agent.protocol.states import Cause, JobStatus, Strategy


def request_for(cluster, **fields):
    code = {"filename": "tiny.py", "text": RECIPE.decode()}
    return {"name": "tiny", "cluster": cluster.name, "code": code, "strategy": "one_device"} | fields


def test_a_submitted_job_is_stored_announced_and_dispatched(member, enqueued, django_capture_on_commit_callbacks):
    cluster = make_lab()
    with django_capture_on_commit_callbacks(execute=True):
        job = jobs.submit_job(request=request_for(cluster, epochs=3, priority=2), by=member)
    assert (job.status, job.owner, job.epochs, job.priority) == (JobStatus.SUBMITTED, member, 3, 2)
    assert job.typed_spec.params == {"units": 1}
    assert bytes(job.code.content) == RECIPE
    assert enqueued == ["trainyard.dispatch"]
    assert Event.objects.get(job=job).text == "Submitted by mel."


def test_what_is_wrong_comes_back_with_its_fields(member):
    with pytest.raises(Invalid) as refused:
        jobs.submit_job(request=request_for(make_lab(), epochs=0, strategy="mirrored", workers=2), by=member)
    assert {error.field for error in refused.value.errors} == {"epochs", "workers"}
    assert not Job.objects.exists()


def test_viewers_may_not(viewer, member):
    cluster = make_lab()
    job = make_job(cluster=cluster, owner=member)
    for act in (
        lambda: jobs.submit_job(request=request_for(cluster), by=viewer),
        lambda: jobs.stop_job(job_id=job.pk, by=viewer),
        lambda: jobs.retry_job(job_id=job.pk, by=viewer),
    ):
        with pytest.raises(Forbidden):
            act()


def test_a_teammate_may_not_stop_but_an_administrator_may(member, teammate, administrator):
    job = make_job(owner=member)
    with pytest.raises(Forbidden):
        jobs.stop_job(job_id=job.pk, by=teammate)
    assert jobs.stop_job(job_id=job.pk, by=administrator).status == JobStatus.STOPPED


def test_stopping_before_launch(member, now):
    job = make_job(owner=member)
    stopped = jobs.stop_job(job_id=job.pk, by=member, now=now)
    assert (stopped.status, stopped.cause, stopped.reason) == (JobStatus.STOPPED, Cause.STOPPED, "Stopped by mel.")
    assert stopped.ended_at == now


@pytest.mark.parametrize("begin", [launch, run])
def test_stopping_a_launched_gang(begin, member, now):
    job = make_gang_job(make_lab())
    Job.objects.filter(pk=job.pk).update(owner=member)
    replicas = begin(job, now)
    assert jobs.stop_job(job_id=job.pk, by=member, now=now).status == JobStatus.STOPPING
    assert jobs.stop_job(job_id=job.pk, by=member, now=now).status == JobStatus.STOPPING
    assert Command.objects.filter(kind="stop").count() == 2
    for replica in replicas:
        end(replica, Cause.STOPPED, now, signal=15)
    job.refresh_from_db()
    assert (job.status, job.reason) == (JobStatus.STOPPED, "Stopped by mel.")


def test_stopping_while_restarting(member, now):
    job = make_gang_job(make_lab())
    Job.objects.filter(pk=job.pk).update(owner=member)
    first, second = launch(job, now)
    end(first, Cause.PORT_TAKEN, now, code=1)
    assert jobs.stop_job(job_id=job.pk, by=member, now=now).status == JobStatus.STOPPING
    end(second, Cause.STOPPED, now)
    job.refresh_from_db()
    assert (job.status, job.cause) == (JobStatus.STOPPED, Cause.STOPPED)


@pytest.mark.parametrize("status", [JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.STOPPED])
def test_what_has_ended_cannot_be_stopped(status, member):
    with pytest.raises(Conflict):
        jobs.stop_job(job_id=make_job(owner=member, status=status).pk, by=member)


def test_no_such_job(member):
    with pytest.raises(NotFound):
        jobs.stop_job(job_id=404, by=member)


def test_retry_makes_a_new_job_of_the_same_spec(member, teammate):
    job = make_job(owner=member, status=JobStatus.FAILED, spec={"epochs": 9})
    again = jobs.retry_job(job_id=job.pk, by=teammate)
    assert (again.pk != job.pk, again.retry_of_id, again.owner, again.status) == (
        True,
        job.pk,
        teammate,
        JobStatus.SUBMITTED,
    )
    assert again.spec == job.spec
    with pytest.raises(Conflict):
        jobs.retry_job(job_id=again.pk, by=member)


def test_the_request_of_a_job_makes_the_same_job(member):
    cluster = make_lab()
    fields = {"strategy": "multi_worker_mirrored", "env": {"A": "1"}, "learning_rate": 0.1, "lr_scaling": "linear"}
    job = jobs.submit_job(request=request_for(cluster, **fields), by=member)
    checked = submission.check(jobs.request_of(job), by=member)
    assert checked.errors == []
    assert checked.spec == job.typed_spec
    assert checked.spec.strategy is Strategy.MULTI_WORKER_MIRRORED
