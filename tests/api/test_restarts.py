"""The ledger of restarts by REST, and the field that asks for them."""

from datetime import UTC, datetime, timedelta

from orchestrator.models import Attempt, Job, LogChunk, Replacement, User
from tests.factories import make_cluster, make_job, make_node, make_replica
from worker_agent.protocol.states import JobStatus, ReplicaStatus, Strategy

AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def restarted(owner: User) -> Job:
    """One that runs in its second launch, after its program failed in the first."""
    job = make_job(owner=owner, status=JobStatus.RUNNING, attempt=2)
    node = make_node(job.cluster, "node-1")
    Attempt.objects.filter(job=job, number=1).update(
        running_at=AT - timedelta(seconds=60),
        cause="exception",
        reason="worker 0 on node-1 failed: ValueError",
        blame="program",
        ended_at=AT,
        step_reached=57,
        failed_on=node,
    )
    running_at = AT + timedelta(seconds=31.5)
    make_replica(job, node=node, attempt=1, step=57, stepped_at=AT - timedelta(seconds=1.5))
    Attempt.objects.filter(job=job, number=2).update(resumed_step=40, running_at=running_at)
    return job


def test_each_restart_says_why_where_and_what_it_cost(calls_as, member: User, viewer: User) -> None:
    job = restarted(member)
    (row,) = calls_as(viewer).get(f"/jobs/{job.pk}/restarts").json()
    assert row == {
        "attempt": 1,
        "replicas": [],
        "cause": "exception",
        "reason": "worker 0 on node-1 failed: ValueError",
        "counted": True,
        "node": "node-1",
        "failed_at": "2026-03-01T12:00:00Z",
        "step_reached": 57,
        "step_resumed": 40,
        "steps_lost": 17,
        "running_at": "2026-03-01T12:00:31.500Z",
        "lost_since": "2026-03-01T11:59:58.500Z",
        "seconds_lost": 33.0,
    }
    assert calls_as(member).get(f"/jobs/{make_job(owner=member).pk}/restarts").json() == []
    assert calls_as(member).get("/jobs/0/restarts").status_code == 404


def replaced(owner: User) -> Job:
    """A running gang under parameter servers one of whose workers was killed and is back."""
    spec = {"strategy": Strategy.PARAMETER_SERVER, "ps": 1, "workers": 2}
    job = make_job(owner=owner, status=JobStatus.RUNNING, spec=spec)
    node = make_node(job.cluster, "node-1", slots=4)
    for role, index in [("chief", 0), ("ps", 0), ("worker", 0)]:
        make_replica(job, node=node, role=role, index=index, started_at=AT, attempt=1, pid=100 + index)
    gone = {"status": ReplicaStatus.EXITED, "cause": "signal", "signal": 9, "ended_at": AT, "pid": 201}
    reason = "worker 1 on node-1 was killed by signal 9 (SIGKILL)."
    old = make_replica(job, node=node, index=1, attempt=1, superseded=True, **gone)
    back_at = AT + timedelta(seconds=4)
    entry = Replacement.objects.create(job=job, failed=old, reason=reason, back_at=back_at, step_reached=57)
    entry.replaced.add(old)
    new = make_replica(job, node=node, index=1, attempt=1, incarnation=1, started_at=AT, pid=202)
    LogChunk.objects.create(replica=old, start=0, end=4, at=1.0, text="old\n")
    LogChunk.objects.create(replica=new, start=0, end=4, at=2.0, text="new\n")
    job.replicas.update(log_size=4)
    return job


def test_a_process_that_was_replaced_is_told_beside_the_one_in_its_place(calls_as, member: User) -> None:
    job = replaced(member)
    program = calls_as(member)
    (row,) = program.get(f"/jobs/{job.pk}/restarts").json()
    assert (row["attempt"], row["replicas"], row["counted"], row["node"]) == (1, ["worker 1"], False, "node-1")
    assert (row["step_reached"], row["step_resumed"], row["steps_lost"], row["seconds_lost"]) == (57, None, 0, 0.0)
    assert row["lost_since"] is None
    rows = [row for row in program.get(f"/jobs/{job.pk}/replicas").json() if row["index"] == 1]
    told = [(row["incarnation"], row["superseded"], row["status"], row["pid"]) for row in rows]
    assert told == [(0, True, "exited", 201), (1, False, "running", 202)]
    logs = {
        name: program.get(f"/jobs/{job.pk}/logs", replica=name) for name in ("worker:1", "worker:1.0", "worker:1.1")
    }
    assert {name: answer.json()["text"] for name, answer in logs.items()} == {
        "worker:1": "new\n",
        "worker:1.0": "old\n",
        "worker:1.1": "new\n",
    }
    for name in ("worker:1.2", "worker:1.", "worker:.1", "worker:1.x"):
        assert program.get(f"/jobs/{job.pk}/logs", replica=name).status_code == 404


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
