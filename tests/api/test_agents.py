"""HTTP for agents: joining by one-time token, and signed requests that nobody else can make."""

import hashlib
import json
import time
from datetime import timedelta
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from dashboard.api import limits
from orchestrator.models import Artifact, Cluster, Event, JoinToken, Node, User
from orchestrator.services.nodes import joining
from tests.factories import RECIPE, make_cluster, make_inventory, make_job, make_node, make_replica
from worker_agent.protocol.codec import plain
from worker_agent.protocol.envelope import sign_request
from worker_agent.protocol.states import JobStatus

pytestmark = pytest.mark.django_db
CONTENT = b"weights" * 1000
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def token(administrator: User) -> str:
    """A fresh join token of cluster "local"."""
    return joining.create_join_token(cluster=make_cluster("local"), by=administrator)


def ask_to_join(body: dict[str, Any] | str, **fields: Any) -> HttpResponse:
    text = body if isinstance(body, str) else json.dumps(body | fields)
    return Client(enforce_csrf_checks=True).post("/agent/v1/join", text, content_type="application/json")


def asked(token: str, **fields: Any) -> dict[str, Any]:
    return {"token": token, "name": "n1", "address": "10.0.0.7", "inventory": plain(make_inventory()), **fields}


def signed(
    node: Node, method: str, path: str, *, key: bytes | None = None, at: int | None = None, **options: Any
) -> HttpResponse:
    """A request as the agent of `node` makes it, or with another key or time."""
    at = int(time.time()) if at is None else at
    mac = sign_request(method=method, path=path, at=at, key=bytes(node.key) if key is None else key)
    headers = {"Authorization": f"Trainyard node={node.pk}, at={at}, mac={mac}", **options.pop("headers", {})}
    query = options.pop("query", "")
    client = Client(enforce_csrf_checks=True)
    return client.generic(method, path + query, headers=headers, **options)


def upload(node: Node, replica: Any, name: str = "model.keras", **options: Any) -> HttpResponse:
    options = {
        "data": CONTENT,
        "content_type": "application/octet-stream",
        "headers": {"X-Trainyard-Sha256": DIGEST, "X-Trainyard-Metrics": '{"loss": 0.5}'},
        "query": "?attempt=1",
    } | options
    return signed(node, "PUT", f"/agent/v1/replicas/{replica.pk}/artifacts/{name}", **options)


def test_a_machine_joins_and_is_told_its_key_once(token: str, settings) -> None:
    settings.AGENT_REDIS_URL = "redis://:word@yard:6379/0"
    answer = ask_to_join(asked(token))
    assert answer.status_code == 201, answer.content
    grant = answer.json()
    node = Node.objects.get()
    assert grant == {
        "node_id": node.pk,
        "node_key": bytes(node.key).hex(),
        "node_name": "n1",
        "cluster": "local",
        "redis_url": "redis://:word@yard:6379/0",
        "heartbeat_s": 1.0,
        "address": "10.0.0.7",
        "interface": "",
        "address_range": "",
    }
    assert "no-store" in answer.headers["Cache-Control"]
    assert not answer.cookies
    assert bytes(node.key).hex() not in "".join(Event.objects.values_list("text", flat=True))


def test_a_machine_names_its_addresses_and_is_told_which_one_is_the_nodes(token: str) -> None:
    Cluster.objects.update(interface="eth1")
    own = [{"interface": "eth0", "address": "10.0.0.7"}]
    refused = ask_to_join(asked(token, address="", own_addresses=own, address_towards="10.0.0.7"))
    assert refused.status_code == 422
    assert "asks for an IPv4 address on the interface eth1" in refused.json()["detail"]
    own.append({"interface": "eth1", "address": "10.1.0.7"})
    grant = ask_to_join(asked(token, address="", own_addresses=own, address_towards="10.0.0.7")).json()
    assert (grant["address"], grant["interface"]) == ("10.1.0.7", "eth1")
    node = Node.objects.get()
    Cluster.objects.update(interface="", address_range="10.1.0.0/16")
    now = signed(node, "GET", "/agent/v1/network")
    assert now.json() == {"cluster": "local", "interface": "", "address_range": "10.1.0.0/16"}
    assert signed(node, "GET", "/agent/v1/network", key=bytes(32)).status_code == 401


def test_a_token_works_once(token: str) -> None:
    assert ask_to_join(asked(token)).status_code == 201
    again = ask_to_join(asked(token, name="n2"))
    assert again.status_code == 403
    assert "used already" in again.json()["detail"]
    assert Node.objects.count() == 1


def test_bad_and_old_tokens_are_refused_in_words(token: str) -> None:
    assert "not known" in ask_to_join(asked("ty_join_wrong")).json()["detail"]
    JoinToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    expired = ask_to_join(asked(token))
    assert (expired.status_code, "expired" in expired.json()["detail"]) == (403, True)
    assert not Node.objects.exists()


def test_a_taken_name_is_a_conflict_and_leaves_the_token(token: str) -> None:
    make_node(Cluster.objects.get(name="local"), "n1")
    assert ask_to_join(asked(token)).status_code == 409
    assert ask_to_join(asked(token, name="n2")).status_code == 201


@pytest.mark.parametrize(
    "change",
    [
        {"name": "../up"},
        {"name": "<script>"},
        {"address": "10.0.0.7; rm"},
        {"address": ""},
        {"inventory": {}},
        {"inventory": None},
        {"token": 7},
    ],
)
def test_bad_requests_to_join_are_422(token: str, change: dict[str, Any]) -> None:
    answer = ask_to_join(asked(token), **change)
    assert answer.status_code == 422, answer.content
    assert answer.json()["errors"]
    assert not Node.objects.exists()
    assert ask_to_join(asked(token)).status_code == 201


@pytest.mark.parametrize("body", ["", "{", "[]", "[" * 100_000])
def test_nonsense_is_422(body: str) -> None:
    assert ask_to_join(body).status_code == 422


def test_joining_is_counted(monkeypatch) -> None:
    monkeypatch.setattr(limits.JOINS, "calls", 1)
    monkeypatch.setattr(limits.JOINS, "_times", type(limits.JOINS._times)())
    assert [ask_to_join(asked("ty_join_x")).status_code for _ in range(2)] == [403, 429]


def test_a_node_fetches_its_program_and_nobody_elses() -> None:
    job = make_job(status=JobStatus.LAUNCHING)
    replica = make_replica(job)
    path = f"/agent/v1/code/{job.code_id}"
    answer = signed(replica.node, "GET", path)
    assert (answer.status_code, answer.content) == (200, RECIPE)
    assert signed(make_node(), "GET", path).status_code == 404
    assert signed(replica.node, "GET", "/agent/v1/code/" + "0" * 64).status_code == 404


def test_false_signatures_are_refused() -> None:
    job = make_job(status=JobStatus.LAUNCHING)
    node, other = make_replica(job).node, make_node()
    path, now = f"/agent/v1/code/{job.code_id}", int(time.time())
    good = sign_request(method="GET", path=path, at=now, key=bytes(node.key))
    other_path = sign_request(method="GET", path=path + "0", at=now, key=bytes(node.key))
    other_method = sign_request(method="PUT", path=path, at=now, key=bytes(node.key))
    headers = [
        "",
        "Bearer ty_x",
        "Trainyard",
        f"Trainyard node={node.pk}, at={now}, mac=",
        f"Trainyard node={node.pk}, at={now}, mac={'0' * 64}",
        f"Trainyard node={node.pk}, at={now}, mac={other_path}",
        f"Trainyard node={node.pk}, at={now}, mac={other_method}",
        f"Trainyard node={node.pk}, at={now + 1}, mac={good}",
        f"Trainyard node={other.pk}, at={now}, mac={good}",
        f"Trainyard node={'0' * 12}, at={now}, mac={good}",
        f"Trainyard node={node.pk}, at={now}, mac={good}\n",
        f"Trainyard node={node.pk}' OR '1'='1, at={now}, mac={good}",
    ]
    for header in headers:
        answer = Client().get(path, headers={"Authorization": header} if header else {})
        assert answer.status_code == 401, header
        assert answer.json()["detail"]
    assert signed(node, "GET", path, key=bytes(other.key)).status_code == 401
    assert signed(node, "GET", path, key=bytes(32)).status_code == 401


@pytest.mark.parametrize("seconds", [-301, 301, -86_400])
def test_old_and_early_requests_are_refused(seconds: int) -> None:
    job = make_job(status=JobStatus.LAUNCHING)
    node = make_replica(job).node
    answer = signed(node, "GET", f"/agent/v1/code/{job.code_id}", at=int(time.time()) + seconds)
    assert answer.status_code == 401
    assert "clock" in answer.json()["detail"]


def test_a_signed_in_person_is_no_node(administrator: User, client_of) -> None:
    job = make_job(status=JobStatus.LAUNCHING)
    make_replica(job)
    assert client_of(administrator).get(f"/agent/v1/code/{job.code_id}").status_code == 401


def test_a_file_is_taken_once(settings, tmp_path) -> None:
    settings.ARTIFACT_ROOT = tmp_path
    replica = make_replica()
    answers = [upload(replica.node, replica) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201], answers[0].content
    row = Artifact.objects.get()
    assert answers[1].json() == {"id": row.pk, "size_bytes": len(CONTENT)}
    assert (row.name, row.size_bytes, row.sha256, row.metrics) == ("model.keras", len(CONTENT), DIGEST, {"loss": 0.5})
    assert (tmp_path / str(row.pk) / "model.keras").read_bytes() == CONTENT


def test_files_of_others_and_of_old_attempts_are_refused(settings, tmp_path) -> None:
    settings.ARTIFACT_ROOT = tmp_path
    replica = make_replica()
    assert upload(make_node(), replica).status_code == 404
    assert upload(replica.node, replica, query="?attempt=2").status_code == 409
    for query in ("", "?attempt=x", "?attempt=-1", "?attempt=" + "9" * 30):
        assert upload(replica.node, replica, query=query).status_code == 422, query
    assert upload(replica.node, replica, key=b"x" * 32).status_code == 401
    assert not Artifact.objects.exists()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    "name", ["..", ".", "..%2F..%2Fetc%2Fpasswd", "%2e%2e", ".hidden", "a%00b", "a%5Cb", "x" * 300]
)
def test_names_that_lead_elsewhere_are_refused(name: str, settings, tmp_path) -> None:
    settings.ARTIFACT_ROOT = tmp_path / "artifacts"
    replica = make_replica()
    answer = upload(replica.node, replica, name)
    assert answer.status_code in (401, 404, 422), answer.status_code
    assert not Artifact.objects.exists()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("headers", "field"),
    [
        ({"X-Trainyard-Sha256": "0" * 64}, "file"),
        ({}, "sha256"),
        ({"X-Trainyard-Sha256": DIGEST, "X-Trainyard-Metrics": "{"}, "metrics"),
        ({"X-Trainyard-Sha256": DIGEST, "X-Trainyard-Metrics": "[]"}, "metrics"),
    ],
)
def test_what_does_not_arrive_whole_is_refused(headers: dict[str, str], field: str, settings, tmp_path) -> None:
    settings.ARTIFACT_ROOT = tmp_path
    replica = make_replica()
    answer = upload(replica.node, replica, headers=headers)
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [field]
    assert not Artifact.objects.exists()


def test_metrics_that_json_lacks_become_words(settings, tmp_path) -> None:
    settings.ARTIFACT_ROOT = tmp_path
    replica = make_replica()
    headers = {"X-Trainyard-Sha256": DIGEST, "X-Trainyard-Metrics": '{"loss": NaN}'}
    assert upload(replica.node, replica, headers=headers).status_code == 201
    assert Artifact.objects.get().metrics == {"loss": "NaN"}


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/agent/v1/join"), ("POST", "/agent/v1/code/x"), ("POST", "/agent/v1/replicas/1/artifacts/x")],
)
def test_other_methods_are_refused(method: str, path: str) -> None:
    assert Client().generic(method, path).status_code == 405
