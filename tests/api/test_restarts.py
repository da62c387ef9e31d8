"""The ledger of restarts by REST, and the field that asks for them."""

from datetime import UTC, datetime, timedelta

from orchestrator.models import Attempt, Job, User
from tests.factories import make_cluster, make_job, make_node
from worker_agent.protocol.states import JobStatus

AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def restarted(owner: User) -> Job:
    """One that runs in its second launch, after its program failed in the first."""
    job = make_job(owner=owner, status=JobStatus.RUNNING, attempt=2)
    node = make_node(job.cluster, "node-1")
    Attempt.objects.filter(job=job, number=1).update(
        cause="exception",
        reason="worker 0 on node-1 failed: ValueError",
        blame="program",
        ended_at=AT,
        step_reached=57,
        failed_on=node,
    )
    running_at = AT + timedelta(seconds=31.5)
    Attempt.objects.filter(job=job, number=2).update(resumed_step=40, running_at=running_at)
    return job


def test_each_restart_says_why_where_and_what_it_cost(calls_as, member: User, viewer: User) -> None:
    job = restarted(member)
    (row,) = calls_as(viewer).get(f"/jobs/{job.pk}/restarts").json()
    assert row == {
        "attempt": 1,
        "cause": "exception",
        "reason": "worker 0 on node-1 failed: ValueError",
        "counted": True,
        "node": "node-1",
        "failed_at": "2026-03-01T12:00:00Z",
        "step_reached": 57,
        "step_resumed": 40,
        "steps_lost": 17,
        "running_at": "2026-03-01T12:00:31.500Z",
        "seconds_lost": 31.5,
    }
    assert calls_as(member).get(f"/jobs/{make_job(owner=member).pk}/restarts").json() == []
    assert calls_as(member).get("/jobs/0/restarts").status_code == 404


def test_how_often_a_job_is_tried_again_is_asked_for_and_kept_by_a_retry(calls_as, member: User) -> None:
    cluster = make_cluster()
    make_node(cluster)
    asked = {"name": "t", "cluster": cluster.name, "recipe": "digits_mlp", "strategy": "one_device", "max_restarts": 3}
    answer = calls_as(member).post("/jobs", asked)
    assert (answer.status_code, answer.json()["spec"]["max_restarts"]) == (201, 3)
    refused = calls_as(member).post("/jobs", asked | {"max_restarts": 101})
    assert refused.status_code == 422
    assert "max_restarts" in refused.content.decode()
    Job.objects.update(status=JobStatus.FAILED.value)
    retry = calls_as(member).post(f"/jobs/{answer.json()['id']}/retry")
    assert (retry.status_code, retry.json()["spec"]["max_restarts"]) == (201, 3)
