"""REST of clusters, nodes and recipes."""

import pytest

from orchestrator.models import Cluster, JoinToken, Node, User
from orchestrator.services.nodes import joining
from tests.api.conftest import Caller
from tests.factories import make_cluster, make_inventory, make_node, make_replica
from worker_agent.protocol.joining import JoinRequest

pytestmark = pytest.mark.django_db


def test_clusters_and_nodes_are_shown(viewer: User, calls_as: Caller) -> None:
    cluster = make_cluster("local", description="<i>here</i>", environment={"A": "b"})
    node = make_node(cluster, "n1", slots=2)
    replica = make_replica(node=node)
    program = calls_as(viewer)
    (shown,) = [row for row in program.get("/clusters").json() if row["name"] == "local"]
    assert (shown["description"], shown["nodes"], shown["ready_nodes"]) == ("<i>here</i>", 1, 1)
    assert shown["environment"] == {"A": "b"}
    (found,) = program.get("/nodes", cluster="local").json()
    assert (found["id"], found["name"], found["cluster"], found["state"]) == (node.pk, "n1", "local", "ready")
    assert [(device["state"], device["job"], device["replica"]) for device in found["devices"]] == [
        ("held", replica.job_id, "worker:0"),
        ("free", None, None),
    ]
    assert "key" not in found
    assert program.get(f"/nodes/{node.pk}").json() == found
    assert program.get("/clusters/local").json() == shown
    for path in ("/clusters/7", "/clusters/no where", "/nothing", "/jobs/one"):
        answer = program.get(path)
        assert (answer.status_code, set(answer.json())) == (404, {"detail", "errors"}), path
    assert program.get("/nodes", cluster="nowhere").status_code == 404
    assert program.get("/nodes/0123456789ab").status_code == 404


def test_administrators_register_and_let_join(administrator: User, calls_as: Caller) -> None:
    program = calls_as(administrator)
    made = program.post("/clusters", {"name": "gpu-hall", "port_first": 30000, "port_last": 30100})
    assert (made.status_code, made.json()["port_first"]) == (201, 30000)
    answer = program.post("/clusters/gpu-hall/join-tokens")
    assert answer.status_code == 201
    token = answer.json()["token"]
    assert token.startswith("ty_join_")
    assert token in answer.json()["command"]
    assert JoinToken.objects.get().digest not in answer.content.decode()
    grant = joining.join(JoinRequest(token=token, name="n1", address="10.0.0.7", inventory=make_inventory()))
    assert grant.cluster == "gpu-hall"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "name"),
        ({"name": "Bad Name!"}, "name"),
        ({"name": "x", "port_first": 30000, "port_last": 20000}, "port"),
        ({"name": "x", "port_first": "many"}, "port_first"),
        ({"name": "x", "address_range": "10.0.0.0/99"}, "address_range"),
        ({"name": "x", "environment": {"TF_CONFIG": "{}"}}, "environment"),
        ({"name": "x", "colour": "red"}, "colour"),
        ({"name": "taken"}, "name"),
    ],
)
def test_bad_clusters_are_refused_at_their_field(
    body: dict[str, object], field: str, administrator: User, calls_as: Caller
) -> None:
    make_cluster("taken")
    answer = calls_as(administrator).post("/clusters", body)
    assert answer.status_code == 422, answer.content
    assert any(field in error["field"] for error in answer.json()["errors"]), answer.json()
    assert Cluster.objects.count() == 1


def test_nodes_are_cordoned_drained_renamed_removed(administrator: User, calls_as: Caller) -> None:
    node, program = make_node(), calls_as(administrator)
    cordoned = program.post(f"/nodes/{node.pk}/cordon", {"reason": "fan is loud"})
    assert (cordoned.status_code, cordoned.json()["state"]) == (200, "cordoned")
    assert "fan is loud" in cordoned.json()["reason"]
    assert program.post(f"/nodes/{node.pk}/uncordon").json()["state"] == "ready"
    assert program.post(f"/nodes/{node.pk}/drain").json()["state"] == "draining"
    assert program.post(f"/nodes/{node.pk}/rename", {"name": "anew"}).json()["name"] == "anew"
    assert program.post(f"/nodes/{node.pk}/rename", {"name": "not a name"}).status_code == 422
    assert program.post(f"/nodes/{node.pk}/rename", {}).status_code == 422
    assert program.delete(f"/nodes/{node.pk}").status_code == 204
    assert program.delete(f"/nodes/{node.pk}").status_code == 404
    assert not Node.objects.filter(pk=node.pk).exists()


@pytest.mark.parametrize("who", ["viewer", "member"])
def test_only_administrators_change_machines(who: str, request: pytest.FixtureRequest, calls_as: Caller) -> None:
    node, program = make_node(), calls_as(request.getfixturevalue(who))
    for path, body in [
        ("/clusters", {"name": "mine"}),
        (f"/clusters/{node.cluster.name}/join-tokens", None),
        (f"/nodes/{node.pk}/cordon", None),
        (f"/nodes/{node.pk}/uncordon", None),
        (f"/nodes/{node.pk}/drain", None),
        (f"/nodes/{node.pk}/rename", {"name": "mine"}),
    ]:
        assert program.post(path, body).status_code == 403, path
    assert program.delete(f"/nodes/{node.pk}").status_code == 403
    assert not JoinToken.objects.exists()
    assert Node.objects.get().state == "ready"


def test_the_catalogue_is_listed(viewer: User, calls_as: Caller) -> None:
    recipes = {recipe["name"]: recipe for recipe in calls_as(viewer).get("/recipes").json()}
    assert {"digits_cnn", "digits_mlp", "breast_cancer", "char_lm"} <= set(recipes)
    (filters,) = [param for param in recipes["digits_cnn"]["params"] if param["name"] == "filters"]
    assert (filters["type"], filters["choices"]) == ("int", [])
