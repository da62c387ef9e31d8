"""The administration: who gets in, what may be changed, and that machines change through the services only."""

import re

import pytest
from django.contrib import admin
from django.test import Client

from orchestrator.models import ApiToken, Event, Node, User
from tests.factories import make_cluster, make_job, make_node, make_replica
from worker_agent.protocol.states import JobStatus

LISTS = ["cluster", "node", "user", "apitoken", "job", "event"]


def address(model: str, action: str = "", pk: object = "") -> str:
    parts = ["admin", "orchestrator", model, str(pk), action]
    return "/" + "/".join(part for part in parts if part) + "/"


@pytest.fixture
def person(administrator: User, client_of) -> Client:
    return client_of(administrator)


@pytest.mark.parametrize("model", LISTS)
def test_every_list_and_row_opens(person: Client, administrator: User, model: str):
    node = make_node(make_cluster("yard"), "nh-01")
    job = make_job(owner=administrator, cluster=node.cluster, status=JobStatus.RUNNING)
    make_replica(job, node=node)
    token = ApiToken.objects.create(user=administrator, name="mine", digest="0" * 64)
    event = Event.objects.create(node=node, job=job, actor=administrator, kind="node_ready", text="<i>hello</i>")
    rows = {"cluster": node.cluster, "node": node, "user": administrator, "apitoken": token, "job": job, "event": event}
    listed = person.get(address(model))
    assert listed.status_code == 200
    text = listed.content.decode()
    assert "<i>hello" not in text
    assert not re.search(r"[ap]\.m\.|midnight|noon", text)
    assert model != "apitoken" or ("API token" in text and re.search(r">\s*20\d\d-\d\d-\d\d \d\d:\d\d", text))
    assert person.get(address(model, "change", rows[model].pk)).status_code == 200


@pytest.mark.parametrize("role", ["viewer", "member"])
@pytest.mark.parametrize("model", LISTS)
def test_only_administrators_get_in(request, client_of, role: str, model: str):
    visitor = client_of(request.getfixturevalue(role))
    assert visitor.get(address(model)).status_code == 403
    assert visitor.get("/admin/").status_code == 403


def test_strangers_are_sent_to_the_sign_in(client: Client, db: None):
    assert client.get("/admin/")["Location"] == "/sign-in/?next=/admin/"


@pytest.fixture
def node(db: None) -> Node:
    return make_node(make_cluster("yard"), "nh-01")


def act(person: Client, action: str, *nodes: Node, **more: str):
    chosen = {"action": action, "_selected_action": [node.pk for node in nodes], **more}
    return person.post(address("node"), chosen, follow=True)


def test_nodes_are_cordoned_and_taken_back(person: Client, administrator: User, node: Node):
    assert "nh-01 is cordoned." in act(person, "cordon", node).content.decode()
    node.refresh_from_db()
    assert node.state == "cordoned"
    assert Event.objects.filter(node=node, actor=administrator).exists()
    act(person, "uncordon", node)
    node.refresh_from_db()
    assert node.state == "ready"


@pytest.mark.parametrize(("action", "left"), [("drain", ["draining"]), ("remove", [])])
def test_draining_and_removing_ask_first(person: Client, node: Node, action: str, left: list[str]):
    question = act(person, action, node).content.decode()
    assert "nh-01" in question
    assert list(Node.objects.values_list("state", flat=True)) == ["ready"]
    act(person, action, node, confirmed="yes")
    assert list(Node.objects.values_list("state", flat=True)) == left


def test_a_node_that_runs_something_stays(person: Client, node: Node):
    make_replica(make_job(cluster=node.cluster, status=JobStatus.RUNNING), node=node)
    assert "still runs" in act(person, "remove", node, confirmed="yes").content.decode()
    assert Node.objects.exists()


def test_of_a_node_only_the_name_can_be_written(person: Client, node: Node):
    sent = {"name": "fresh", "state": "lost", "address": "6.6.6.6", "cluster": "9", "inventory": "{}"}
    person.post(address("node", "change", node.pk), sent)
    changed = Node.objects.get()
    assert (changed.name, changed.state, changed.address) == ("fresh", "ready", node.address)
    assert Event.objects.filter(kind="node_renamed").exists()


def test_a_bad_name_changes_nothing(person: Client, node: Node):
    make_node(node.cluster, "taken")
    for bad in ("taken", "no good"):
        answer = person.post(address("node", "change", node.pk), {"name": bad}, follow=True)
        assert "The name was not changed" in answer.content.decode()
    assert Node.objects.get(pk=node.pk).name == "nh-01"


def test_nodes_come_by_joining_only(person: Client, node: Node):
    assert person.get(address("node", "add")).status_code == 403
    assert person.post(address("node", "delete", node.pk), {"post": "yes"}).status_code == 403


@pytest.mark.parametrize("model", ["cluster", "user", "job", "event", "apitoken"])
def test_history_can_only_be_read(person: Client, administrator: User, model: str):
    job = make_job(status=JobStatus.RUNNING)
    token = ApiToken.objects.create(user=administrator, name="mine", digest="0" * 64)
    others = {"cluster": job.cluster, "user": job.owner}
    rows = others | {"job": job, "event": Event.objects.create(kind="x", text="x"), "apitoken": token}
    row = rows[model]
    assert person.get(address(model, "add")).status_code == 403
    assert (
        person.post(address(model, "change", row.pk), {"status": "failed", "text": "y", "name": "y"}).status_code == 403
    )
    if model != "apitoken":
        assert person.post(address(model, "delete", row.pk), {"post": "yes"}).status_code == 403
    person.post(address(model), {"action": "delete_selected", "_selected_action": [row.pk], "post": "yes"})
    assert type(row).objects.filter(pk=row.pk).exists()


def test_an_administrator_revokes_anybody_s_token(person: Client, member: User):
    token = ApiToken.objects.create(user=member, name="theirs", digest="0" * 64)
    assert token.digest not in person.get(address("apitoken", "change", token.pk)).content.decode()
    person.post(address("apitoken", "delete", token.pk), {"post": "yes"})
    assert not ApiToken.objects.exists()


def test_who_owns_jobs_or_is_oneself_is_not_deleted(person: Client, administrator: User, member: User, teammate: User):
    make_job(owner=member)
    for user in (administrator, member):
        assert person.post(address("user", "delete", user.pk), {"post": "yes"}).status_code == 403
    person.post(address("user", "delete", teammate.pk), {"post": "yes"})
    assert set(User.objects.filter(pk__in=[administrator.pk, member.pk, teammate.pk])) == {administrator, member}
    assert Event.objects.get(kind="person_deleted").text == "tom was deleted."


def test_the_index_has_our_order(person: Client):
    apps = admin.site.get_app_list(person.get("/admin/").wsgi_request)
    assert [app["app_label"] for app in apps] == ["orchestrator", "axes"]
    ours = [model["object_name"] for model in apps[0]["models"]]
    assert ours == ["Cluster", "Node", "Job", "Event", "User", "ApiToken"]
