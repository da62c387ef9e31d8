"""REST of jobs: names and shapes that clients rely on, roles, refusals."""

import math
from collections.abc import Callable

import pytest
from django.test import Client
from django.utils import timezone

from dashboard.api import limits
from orchestrator import series
from orchestrator.models import Artifact, Event, Job, LogChunk, User
from orchestrator.services.jobs.jobs import submit_job
from orchestrator.services.programs import programs
from tests.api.conftest import Caller
from tests.factories import RECIPE, make_cluster, make_job, make_node, make_replica
from worker_agent.protocol.states import JobStatus, ReplicaStatus

JOB_KEYS = {
    "id", "name", "cluster", "recipe", "status", "reason", "strategy", "attempt", "progress", "epoch", "step",
    "metrics", "created_at", "started_at", "ended_at",
}  # fmt: skip


@pytest.fixture
def request_body(db: None) -> dict[str, object]:
    """A job that can be placed."""
    cluster = make_cluster("local")
    make_node(cluster)
    make_node(cluster)
    return {
        "name": "tiny",
        "cluster": "local",
        "code": {"filename": "tiny.py", "text": RECIPE.decode()},
        "params": {"units": 3},
        "strategy": "multi_worker_mirrored",
        "workers": 2,
        "global_batch_size": 16,
        "epochs": 2,
        "env": {"A": "b"},
    }


def test_a_job_is_made_and_read(request_body: dict[str, object], member: User, calls_as: Caller) -> None:
    program = calls_as(member)
    answer = program.post("/jobs", request_body)
    assert answer.status_code == 201, answer.content
    job = answer.json()
    assert set(job) >= JOB_KEYS
    assert (job["name"], job["cluster"], job["status"], job["strategy"]) == (
        "tiny", "local", "submitted", "multi_worker_mirrored",
    )  # fmt: skip
    assert job["spec"]["params"] == {"units": 3}
    assert program.get(f"/jobs/{job['id']}").json() == job
    listed = program.get("/jobs").json()
    assert listed["items"] == [job]
    assert listed["next"] is None


def test_a_job_by_rest_is_the_job_of_the_browser(
    request_body: dict[str, object], member: User, calls_as: Caller, django_capture_on_commit_callbacks, sent: list[str]
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        made = calls_as(member).post("/jobs", request_body).json()
    assert sent == ["trainyard.dispatch"]
    by_service = submit_job(request=request_body, by=member)
    by_rest = Job.objects.get(pk=made["id"])
    for column in ("spec", "code_id", "cluster_id", "owner_id", "strategy", "status", "priority", "epochs", "recipe"):
        assert getattr(by_rest, column) == getattr(by_service, column), column


def test_every_wrong_field_is_named_at_once(request_body: dict[str, object], member: User, calls_as: Caller) -> None:
    request_body |= {"name": "", "cluster": "nowhere", "epochs": 0, "params": {"units": 99}, "colour": "red"}
    answer = calls_as(member).post("/jobs", request_body)
    assert answer.status_code == 422
    problem = answer.json()
    assert set(problem) == {"detail", "errors"}
    assert {"name", "cluster", "epochs", "colour"} <= {error["field"] for error in problem["errors"]}
    assert any(error["field"].startswith("params") for error in problem["errors"])
    assert all(error["message"] for error in problem["errors"])
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    "body", ["", "{", "[]", "null", '"x"', "[" * 100_000, '{"epochs": NaN}', "\xff", '{"name": "a\\u0000b"}']
)
def test_nonsense_is_refused_in_words(body: str, member: User, calls_as: Caller) -> None:
    for path in ("/jobs", "/jobs/preview"):
        answer = calls_as(member).post(path, body)
        is_object = body.startswith("{") and "NaN" not in body and len(body) > 1
        assert answer.status_code == (200 if is_object and path == "/jobs/preview" else 422), path
        assert answer.json()["errors"]


def test_a_preview_is_for_those_who_may_create_jobs(
    request_body: dict[str, object], viewer: User, calls_as: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "resolve", lambda *_, **__: pytest.fail("a viewer had a program fetched"))
    answer = calls_as(viewer).post("/jobs/preview", request_body)
    assert answer.status_code == 403
    assert "Your role" in answer.json()["detail"]


def test_preview_tells_and_makes_nothing(request_body: dict[str, object], member: User, calls_as: Caller) -> None:
    seen = calls_as(member).post("/jobs/preview", request_body).json()
    assert seen["errors"] == []
    assert (seen["batch"]["replicas_in_sync"], seen["batch"]["per_worker"]) == (2, 8)
    assert [place["role"] for place in seen["placement"]] == ["worker", "worker"]
    assert set(seen["tf_configs"]) == {"worker:0", "worker:1"}
    assert seen["tf_configs"]["worker:1"]["task"] == {"type": "worker", "index": 1}
    broken = calls_as(member).post("/jobs/preview", request_body | {"global_batch_size": 15}).json()
    assert [error["field"] for error in broken["errors"]] == ["global_batch_size"]
    assert not Job.objects.exists()


def test_pages_of_jobs(member: User, teammate: User, calls_as: Caller) -> None:
    cluster = make_cluster()
    made = [make_job(owner=member, cluster=cluster, name=f"job {number}").pk for number in range(5)]
    other = make_job(owner=teammate, name="other", status=JobStatus.FAILED, strategy="mirrored").pk
    program, seen, cursor = calls_as(member), [], None
    while True:
        page = program.get("/jobs", limit=2, **({"cursor": cursor} if cursor else {})).json()
        seen += [job["id"] for job in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert seen == [other, *reversed(made)]
    for query, expected in [
        ({"status": "failed"}, [other]),
        ({"status": ["failed", "submitted"]}, seen),
        ({"strategy": "mirrored"}, [other]),
        ({"owner": "tom"}, [other]),
        ({"cluster": cluster.name}, seen[1:]),
        ({"search": "JOB 3"}, [made[3]]),
        ({"search": f"j-{made[0]}"}, [made[0]]),
        ({"search": "%"}, []),
    ]:
        assert [job["id"] for job in program.get("/jobs", **query).json()["items"]] == expected, query


@pytest.mark.parametrize(
    "query",
    [{"limit": 0}, {"limit": 9999}, {"limit": "x"}, {"cursor": "x"}, {"status": "sleeping"}, {"strategy": "magic"}],
)
def test_bad_queries_are_422(query: dict[str, object], member: User, calls_as: Caller) -> None:
    answer = calls_as(member).get("/jobs", **query)
    assert answer.status_code == 422
    assert [error["field"].split(".")[0] for error in answer.json()["errors"]][:1] == list(query)


def test_replicas_series_logs_events_artifacts(member: User, calls_as: Caller, settings, tmp_path) -> None:
    settings.ARTIFACT_ROOT = tmp_path
    job = make_job(owner=member, status=JobStatus.RUNNING, started_at=timezone.now(), metrics={"loss": "NaN"})
    config = {"cluster": {"worker": ["10.0.0.1:2000"]}, "task": {"type": "worker", "index": 0}}
    ended = {"exit_code": 1, "reason": "gone", "refused": 3}
    replica = make_replica(job, status=ReplicaStatus.EXITED, pid=7, tf_config=config, **ended)
    run = series.curve_of([0, 1, 2], [1.0, 2.0, 3.0], [0.5, math.nan, -math.inf])
    series.append([series.Addition(series.Owner(replica_id=replica.pk), "loss", run)])
    LogChunk.objects.create(replica=replica, start=0, end=6, at=1.0, text="één\n")
    Event.objects.create(job=job, kind="job_running", text="<b>up</b>", attempt=1, actor=member)
    row = Artifact.objects.create(job=job, attempt=1, name="model.keras", size_bytes=3, sha256="0" * 64)
    (tmp_path / str(row.pk)).mkdir()
    (tmp_path / str(row.pk) / "model.keras").write_bytes(b"abc")
    program = calls_as(member)

    (shown,) = program.get(f"/jobs/{job.pk}/replicas").json()
    named = ("role", "index", "node", "status", "pid", "port", "tf_config", "exit_code", "reason", "refused")
    assert {name: shown[name] for name in named} == {
        "role": "worker", "index": 0, "node": replica.node_name, "status": "exited", "pid": 7, "port": replica.port,
        "tf_config": config, "exit_code": 1, "reason": "gone", "refused": 3,
    }  # fmt: skip
    assert program.get(f"/jobs/{job.pk}").json()["metrics"] == {"loss": "NaN"}
    found = program.get(f"/jobs/{job.pk}/series", names="loss,absent", points=100).json()
    assert found == {
        "loss": [
            {
                "replica": "worker:0",
                "attempt": 1,
                "steps": [0, 1, 2],
                "times": [1.0, 2.0, 3.0],
                "values": [0.5, "NaN", "-Infinity"],
                "incarnation": 0,
            }
        ]
    }
    piece = program.get(f"/jobs/{job.pk}/logs", replica="worker:0", limit=4).json()
    assert len(piece["text"].encode()) <= 4
    rest = program.get(f"/jobs/{job.pk}/logs", replica="worker:0", offset=piece["next"]).json()
    assert piece["text"] + rest["text"] == "één\n"
    assert rest["next"] == 6
    assert [event["text"] for event in program.get(f"/jobs/{job.pk}/events").json()] == ["<b>up</b>"]
    (artifact,) = program.get(f"/jobs/{job.pk}/artifacts").json()
    assert (artifact["name"], artifact["size_bytes"]) == ("model.keras", 3)
    download = program.client.get(artifact["url"], headers=program.headers)
    assert b"".join(download.streaming_content) == b"abc"
    assert download.headers["Content-Disposition"] == 'attachment; filename="model.keras"'
    assert download.headers["Content-Type"] == "application/octet-stream"


def test_files_belong_to_their_job(member: User, calls_as: Caller, settings, tmp_path) -> None:
    settings.ARTIFACT_ROOT = tmp_path
    owner, other = make_job(owner=member), make_job(owner=member)
    row = Artifact.objects.create(job=owner, attempt=1, name="a", size_bytes=0, sha256="0" * 64)
    program = calls_as(member)
    for path in (f"/jobs/{other.pk}/artifacts/{row.pk}", f"/jobs/{owner.pk}/artifacts/{row.pk}"):
        assert program.get(path).status_code == 404, "not its file, and a file that is gone"


def test_what_is_not_there_is_404(member: User, calls_as: Caller) -> None:
    program = calls_as(member)
    for tail in ("", "/replicas", "/series", "/logs?replica=worker:0", "/events", "/artifacts", "/artifacts/1"):
        answer = program.get(f"/jobs/987654{tail}")
        assert (answer.status_code, answer.json()["errors"]) == (404, []), tail
    for tail in ("/stop", "/retry"):
        assert program.post(f"/jobs/987654{tail}").status_code == 404
    job = make_job(owner=member)
    assert program.get(f"/jobs/{job.pk}/logs", replica="worker:7").status_code == 404
    assert program.get(f"/jobs/{job.pk}/logs", replica="../../etc/passwd").status_code == 404
    assert program.get(f"/jobs/{job.pk}/logs").status_code == 422
    assert program.get(f"/jobs/{job.pk}/logs", replica="worker:0", limit=3).status_code == 422
    assert program.get(f"/jobs/{job.pk}/replicas").json() == []
    for attempt in (0, 1, -1, 7):
        answer = program.get(f"/jobs/{job.pk}/replicas", attempt=attempt)
        assert (answer.status_code, answer.json()["detail"]) == (404, f"This job has no attempt {attempt}.")


def test_stop_and_retry(member: User, calls_as: Caller) -> None:
    job, program = make_job(owner=member), calls_as(member)
    assert program.post(f"/jobs/{job.pk}/retry").status_code == 409
    stopped = program.post(f"/jobs/{job.pk}/stop")
    assert (stopped.status_code, stopped.json()["status"]) == (200, "stopped")
    assert program.post(f"/jobs/{job.pk}/stop").status_code == 409
    again = program.post(f"/jobs/{job.pk}/retry")
    assert (again.status_code, again.json()["retry_of"]) == (201, job.pk)


def test_pause_and_resume(member: User, teammate: User, viewer: User, calls_as: Caller) -> None:
    job, program = make_job(owner=member, status=JobStatus.RUNNING, attempt=1), calls_as(member)
    for person in (teammate, viewer):
        assert [calls_as(person).post(f"/jobs/{job.pk}/{act}").status_code for act in ("pause", "resume")] == [403, 403]
    paused = program.post(f"/jobs/{job.pk}/pause")
    assert (paused.status_code, paused.json()["status"]) == (200, "pausing")
    assert program.post(f"/jobs/{job.pk}/resume").status_code == 409
    Job.objects.filter(pk=job.pk).update(status=JobStatus.PAUSED)
    resumed = program.post(f"/jobs/{job.pk}/resume")
    assert (resumed.status_code, resumed.json()["status"]) == (200, "submitted")
    refused = program.post(f"/jobs/{job.pk}/pause")
    assert (refused.status_code, "this one is submitted" in refused.json()["detail"]) == (409, True)


def test_viewers_look_and_change_nothing(
    request_body: dict[str, object], viewer: User, member: User, calls_as: Caller
) -> None:
    job, program = make_job(owner=member), calls_as(viewer)
    assert program.get(f"/jobs/{job.pk}").status_code == 200
    ended = make_job(owner=member, status=JobStatus.FAILED)
    for path in ("/jobs", f"/jobs/{job.pk}/stop", f"/jobs/{ended.pk}/retry"):
        answer = program.post(path, request_body if path == "/jobs" else None)
        assert (answer.status_code, answer.json()["errors"]) == (403, []), path
    assert Job.objects.count() == 2


def test_others_jobs_are_stopped_by_administrators_only(
    member: User, teammate: User, administrator: User, calls_as: Caller
) -> None:
    job = make_job(owner=member)
    assert calls_as(teammate).post(f"/jobs/{job.pk}/stop").status_code == 403
    assert calls_as(administrator).post(f"/jobs/{job.pk}/stop").status_code == 200


def test_writes_are_counted_per_person(
    request_body: dict[str, object], member: User, teammate: User, calls_as: Caller, monkeypatch
) -> None:
    monkeypatch.setattr(limits.WRITES, "calls", 2)
    monkeypatch.setattr(limits.WRITES, "_times", type(limits.WRITES._times)())
    program = calls_as(member)
    assert [program.post("/jobs", request_body).status_code for _ in range(3)] == [201, 201, 429]
    slow = program.post("/jobs", request_body)
    assert slow.headers["Retry-After"] == "60"
    assert slow.json()["errors"] == []
    assert program.get("/jobs").status_code == 200
    assert calls_as(teammate).post("/jobs", request_body).status_code == 201


def test_a_session_needs_the_csrf_token(
    request_body: dict[str, object], member: User, client_of: Callable[[User], Client]
) -> None:
    job = make_job(owner=member)
    signed_in = client_of(member)
    browser = Client(enforce_csrf_checks=True)
    browser.cookies = signed_in.cookies
    assert browser.get(f"/api/v1/jobs/{job.pk}").status_code == 200
    for headers in ({}, {"Origin": "https://evil.example"}, {"X-CSRFToken": "x" * 32}):
        answer = browser.post(f"/api/v1/jobs/{job.pk}/stop", headers=headers)
        assert answer.status_code == 403
        assert "CSRF" in answer.json()["detail"]
    browser.cookies["csrftoken"] = "a" * 32
    foreign = {"X-CSRFToken": "a" * 32, "Origin": "https://evil.example"}
    assert browser.post(f"/api/v1/jobs/{job.pk}/stop", headers=foreign).status_code == 403
    own = {"X-CSRFToken": "a" * 32, "Origin": "http://testserver"}
    assert browser.post(f"/api/v1/jobs/{job.pk}/stop", headers=own).status_code == 200


def test_a_wrong_token_is_not_helped_by_a_session(member: User, client_of: Callable[[User], Client]) -> None:
    browser = client_of(member)
    for value in ("Bearer ty_wrong", "Basic bWVsOng=", "Bearer", "ty_x"):
        answer = browser.get("/api/v1/jobs", headers={"Authorization": value})
        assert answer.status_code == 401, value
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.django_db
def test_strangers_get_401_with_the_usual_shape() -> None:
    answer = Client().get("/api/v1/jobs")
    assert (answer.status_code, answer.json()["errors"]) == (401, [])
    assert Client().post("/api/v1/jobs").status_code == 401


def test_a_job_that_has_ended_can_be_deleted(
    calls_as: Caller, client_of: Callable[[User], Client], member: User
) -> None:
    job = make_job(owner=member, status=JobStatus.FAILED)
    other = make_job(owner=member, status=JobStatus.RUNNING)
    rest, browser = calls_as(member), client_of(member)
    assert [rest.delete(f"/jobs/{each.pk}").status_code for each in (other, job, job)] == [409, 204, 404]
    page = browser.get(f"/jobs/{other.pk}/").content.decode()
    assert 'id="delete"' in page
    assert 'data-open="delete"' not in page
    Job.objects.filter(pk=other.pk).update(status=JobStatus.STOPPED.value)
    assert 'data-open="delete"' in browser.get(f"/jobs/{other.pk}/").content.decode()
    browser.post(f"/jobs/{other.pk}/delete/", {"confirm": "something else"})
    assert Job.objects.filter(pk=other.pk).exists()
    assert browser.post(f"/jobs/{other.pk}/delete/", {"confirm": other.name})["Location"] == "/jobs/"
    assert not Job.objects.exists()


def test_printed_lines_are_offered_and_drawn(member: User, calls_as: Caller) -> None:
    program = calls_as(member)
    job = make_job(owner=member, status=JobStatus.SUCCEEDED, attempt=1, spec={"kind": "script"})
    replica = make_replica(job, log_size=18)
    LogChunk.objects.create(replica=replica, start=0, end=18, at=1.0, text="loss: 2\nloss: nan\n")
    (found,) = program.get(f"/jobs/{job.pk}/printed").json()
    assert found == {"name": "loss", "lines": 2, "first": 2.0, "last": "NaN"}
    assert program.post(f"/jobs/{job.pk}/printed", {"names": "("}).status_code == 422
    drawn = program.post(f"/jobs/{job.pk}/printed", {"names": "loss"})
    assert (drawn.status_code, drawn.json()["metrics"]) == (200, {"loss": "NaN"})
    assert program.post(f"/jobs/{job.pk}/printed", {"names": "loss"}).status_code == 409


def test_many_jobs_are_tagged_found_and_sorted(member: User, viewer: User, calls_as: Caller) -> None:
    program = calls_as(member)
    jobs = [make_job(owner=member, name=name, metrics={"acc": value}) for name, value in (("a", 0.2), ("b", 0.8))]
    for job in jobs:
        job.metric_rows.create(name="acc", value=job.metrics["acc"])
    body = {"action": "tag", "jobs": [*(job.pk for job in jobs), 99], "tag": "North"}
    assert program.post("/jobs/bulk", body).json() == {
        "done": [job.pk for job in jobs],
        "refused": [{"job": 99, "why": "There is no such job (any more)."}],
    }
    found = program.get("/jobs?tag=north&sort=metric&metric=acc&limit=1").json()
    assert ([job["name"] for job in found["items"]], found["next"]) == (["a"], 1)
    assert [job["tags"] for job in found["items"]] == [["north"]]
    assert program.get("/jobs?sort=-metric").json()["errors"][0]["field"] == "metric"
    assert program.get("/jobs?sort=spec").status_code == 422
    assert program.put(f"/jobs/{jobs[0].pk}/tags", {"tags": []}).json()["tags"] == []
    assert program.put(f"/jobs/{jobs[0].pk}/notes", {"notes": "why"}).json() == {"notes": "why"}
    assert program.get(f"/jobs/{jobs[0].pk}/notes").json() == {"notes": "why"}
    assert calls_as(viewer).put(f"/jobs/{jobs[0].pk}/notes", {"notes": ""}).status_code == 403
    many = {"action": "stop", "jobs": list(range(1, 10_001))}
    assert "At most 200 jobs" in program.post("/jobs/bulk", many).json()["detail"]
    assert program.post("/jobs/bulk", {"action": "burn", "jobs": [1]}).status_code == 422
