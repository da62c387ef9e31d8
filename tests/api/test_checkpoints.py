"""Checkpoints over HTTP: handed in by an agent, listed and fetched by people, fetched by the agents of a gang."""

import hashlib
import io
import tarfile
import time

import pytest
from django.http import HttpResponse
from django.test import Client

from orchestrator.models import Attempt, Checkpoint, Node, Replica, User
from tests.factories import make_job, make_node, make_replica
from tests.services.checkpoints.test_checkpoints import CONTENT, marker_of
from worker_agent.protocol.checkpoint import MARKER, name_of
from worker_agent.protocol.envelope import sign_request
from worker_agent.protocol.states import JobStatus

NAME = name_of(step=20, attempt=1)


@pytest.fixture(autouse=True)
def _root(tmp_path, settings, db) -> None:
    settings.CHECKPOINT_ROOT = tmp_path


def signed(node: Node, method: str, path: str, data: bytes = b"", query: str = "?attempt=1") -> HttpResponse:
    at = int(time.time())
    mac = sign_request(method=method, path=path, at=at, key=bytes(node.key))
    headers = {"Authorization": f"Trainyard node={node.pk}, at={at}, mac={mac}"}
    return Client().generic(method, path + query, data, content_type="application/octet-stream", headers=headers)


def hand_in(replica: Replica) -> Checkpoint:
    """As the agent does: offer, send what is missing, offer again."""
    path = f"/agent/v1/replicas/{replica.pk}/checkpoints/{NAME}"
    offered = signed(replica.node, "PUT", path, marker_of(replica, 20))
    assert (offered.status_code, sorted(offered.json()["missing"])) == (200, sorted(CONTENT))
    for name, data in CONTENT.items():
        assert signed(replica.node, "PUT", f"{path}/{name}", data).status_code == 201
    complete = signed(replica.node, "PUT", path, marker_of(replica, 20))
    assert (complete.status_code, complete.json()) == (201, {"missing": []})
    return Checkpoint.objects.get()


def test_it_is_handed_in_listed_downloaded_and_resumed(calls_as, member: User, viewer: User) -> None:
    replica = make_replica(make_job(owner=member, status=JobStatus.RUNNING, spec={"epochs": 3}))
    row = hand_in(replica)
    base = f"/jobs/{replica.job_id}/checkpoints"
    (shown,) = calls_as(viewer).get(base).json()
    assert (shown["id"], shown["step"], shown["best"], shown["where"], shown["usable"]) == (
        row.pk,
        20,
        True,
        "store",
        True,
    )
    answer = calls_as(viewer).get(shown["url"].removeprefix("/api/v1"))
    assert "attachment" in answer.headers["Content-Disposition"]
    with tarfile.open(fileobj=io.BytesIO(b"".join(answer.streaming_content))) as content:
        assert sorted(content.getnames()) == sorted(f"{NAME}/{name}" for name in [MARKER, *CONTENT])
    assert calls_as(viewer).post(f"{base}/{row.pk}/resume").status_code == 403
    resumed = calls_as(member).post(f"{base}/{row.pk}/resume")
    assert resumed.status_code == 201
    assert resumed.json()["spec"]["resume_from"] == row.pk
    assert calls_as(member).post(f"{base}/{row.pk + 1}/resume").status_code == 404
    assert calls_as(member).get(f"{base}/{row.pk + 1}").status_code == 404


def test_an_agent_fetches_the_one_that_its_replica_begins_with() -> None:
    row = hand_in(make_replica(make_job(status=JobStatus.RUNNING)))
    beginning = make_replica(make_job(status=JobStatus.LAUNCHING))
    path = f"/agent/v1/checkpoints/{row.pk}"
    assert signed(beginning.node, "GET", f"{path}/{MARKER}").status_code == 404
    Attempt.objects.filter(job=beginning.job).update(resumed_from=row)
    marker = b"".join(signed(beginning.node, "GET", f"{path}/{MARKER}").streaming_content)
    assert hashlib.sha256(marker).hexdigest() == row.sha256
    for name, data in CONTENT.items():
        assert b"".join(signed(beginning.node, "GET", f"{path}/{name}").streaming_content) == data
    assert signed(make_node(), "GET", f"{path}/{MARKER}").status_code == 404
    assert Client().get(f"{path}/{MARKER}").status_code == 401


def test_what_is_wrong_is_refused_in_words() -> None:
    replica = make_replica()
    path = f"/agent/v1/replicas/{replica.pk}/checkpoints/{NAME}"
    assert signed(replica.node, "PUT", path, b"{").status_code == 422
    assert signed(replica.node, "PUT", path, marker_of(replica, 20), query="?attempt=2").status_code == 409
    assert signed(replica.node, "PUT", path, marker_of(replica, 20), query="").status_code == 422
    assert signed(replica.node, "PUT", f"{path}/state.index", b"index").status_code == 404
    assert signed(make_node(), "PUT", path, marker_of(replica, 20)).status_code == 404
    signed(replica.node, "PUT", path, marker_of(replica, 20))
    torn = signed(replica.node, "PUT", f"{path}/state.index", b"torn")
    assert torn.status_code == 422
    assert "SHA-256" in torn.json()["errors"][0]["message"]
