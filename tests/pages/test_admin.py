"""The administration: who gets in, what may be changed, and that machines change through the services only."""

import re

import pytest
from django.test import Client

from orchestrator.models import ApiToken, Cluster, Event, JoinToken, Node, User, UserRole
from tests.factories import PASSWORD, make_cluster, make_job, make_node, make_replica
from worker_agent.protocol.states import JobStatus

LISTS = ["cluster", "node", "user", "apitoken", "job", "event"]
CLUSTER = {
    "name": "north",
    "description": "Ours",
    "address_range": "10.0.4.0/24",
    "interface": "",
    "port_first": "21000",
    "port_last": "21099",
    "checkpoint_place": "/ckpt",
    "environment": "A=1\nB=two",
}


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


def test_saving_a_cluster_shows_the_join_command(person: Client, administrator: User):
    answer = person.post(address("cluster", "add"), CLUSTER)
    cluster = Cluster.objects.get()
    assert answer.status_code == 200
    assert re.search(r"join \S+ --token ty_join_", answer.content.decode())
    assert "no-store" in answer["Cache-Control"]
    assert (cluster.environment, cluster.port_last) == ({"A": "1", "B": "two"}, 21099)
    assert JoinToken.objects.get().created_by == administrator
    assert Event.objects.filter(kind="cluster_created", actor=administrator).exists()


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("address_range", "nonsense", "Write a range such as"),
        ("interface", "eth 1", "Write a network interface"),
        ("port_last", "20000", "must not be below the first"),
        ("environment", "A", "Line 1 is not of the form"),
        ("environment", "TF_CONFIG=1", "set by Trainyard"),
        ("name", "with space", "letters, digits, hyphens"),
    ],
)
def test_a_wrong_cluster_is_refused_at_its_field(person: Client, field: str, value: str, words: str):
    answer = person.post(address("cluster", "add"), CLUSTER | {field: value})
    assert answer.status_code == 200
    assert words in answer.content.decode()
    assert not Cluster.objects.exists()


def test_a_cluster_is_changed_through_the_service(person: Client, administrator: User):
    cluster = make_cluster("north")
    assert person.post(address("cluster", "change", cluster.pk), CLUSTER).status_code == 302
    cluster.refresh_from_db()
    assert cluster.checkpoint_place == "/ckpt"
    assert Event.objects.filter(kind="cluster_changed", actor=administrator).exists()


def test_a_cluster_with_jobs_keeps_its_name(person: Client):
    cluster = make_cluster("north")
    make_job(cluster=cluster)
    assert person.post(address("cluster", "change", cluster.pk), CLUSTER | {"name": "south"}).status_code == 302
    cluster.refresh_from_db()
    assert (cluster.name, cluster.checkpoint_place) == ("north", "/ckpt")


def test_only_an_empty_cluster_can_be_deleted(person: Client, administrator: User):
    empty, used, busy = make_cluster("empty"), make_cluster("used"), make_cluster("busy")
    make_node(used)
    make_job(cluster=busy)
    person.post(address("cluster", "delete", empty.pk), {"post": "yes"})
    for kept in (used, busy):
        assert person.post(address("cluster", "delete", kept.pk), {"post": "yes"}).status_code == 403
    assert set(Cluster.objects.all()) == {used, busy}
    assert Event.objects.get(kind="cluster_deleted").actor == administrator


def test_a_join_command_by_post_only(person: Client):
    cluster = make_cluster("north")
    asked = person.get(address("cluster", "join", cluster.pk))
    if asked.status_code == 404:
        asked = person.get(f"/admin/orchestrator/cluster/{cluster.pk}/join/")
    assert asked.status_code == 200
    assert not JoinToken.objects.exists()
    made = person.post(asked.request["PATH_INFO"])
    assert "--token ty_join_" in made.content.decode()
    assert JoinToken.objects.count() == 1


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


@pytest.mark.parametrize("model", ["job", "event", "apitoken"])
def test_history_can_only_be_read(person: Client, administrator: User, model: str):
    job = make_job(status=JobStatus.RUNNING)
    token = ApiToken.objects.create(user=administrator, name="mine", digest="0" * 64)
    rows = {"job": job, "event": Event.objects.create(kind="x", text="x"), "apitoken": token}
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


def test_adding_a_person_with_password_and_role(person: Client):
    sent = {"username": "new", "role": "viewer", "password1": PASSWORD, "password2": PASSWORD}
    assert person.post(address("user", "add"), sent).status_code == 302
    added = User.objects.get(username="new")
    assert (added.role, added.is_staff, added.check_password(PASSWORD)) == (UserRole.VIEWER, False, True)


def test_weak_passwords_are_refused(person: Client):
    sent = {"username": "new", "role": "viewer", "password1": "short", "password2": "short"}
    assert person.post(address("user", "add"), sent).status_code == 200
    assert not User.objects.filter(username="new").exists()


def change(person: Client, user: User, **fields: str):
    sent = {"username": user.username, "role": user.role, "is_active": "on", "first_name": "", "last_name": ""}
    values = {name: value for name, value in (sent | {"email": ""} | fields).items() if value != "off"}
    return person.post(address("user", "change", user.pk), values)


def test_a_role_goes_up_and_down(person: Client, member: User):
    change(person, member, role="administrator")
    member.refresh_from_db()
    assert (member.role, member.is_staff, member.is_superuser) == (UserRole.ADMINISTRATOR, True, True)
    change(person, member, role="viewer")
    member.refresh_from_db()
    assert (member.role, member.is_staff, member.is_superuser) == (UserRole.VIEWER, False, False)


@pytest.mark.parametrize("fields", [{"role": "member"}, {"is_active": "off"}])
def test_the_last_administrator_stays(person: Client, administrator: User, fields: dict[str, str]):
    answer = change(person, administrator, **fields)
    assert "last administrator" in answer.content.decode()
    administrator.refresh_from_db()
    assert (administrator.role, administrator.is_active) == (UserRole.ADMINISTRATOR, True)


def test_who_owns_jobs_or_is_oneself_is_not_deleted(person: Client, administrator: User, member: User, teammate: User):
    make_job(owner=member)
    for user in (administrator, member):
        assert person.post(address("user", "delete", user.pk), {"post": "yes"}).status_code == 403
    person.post(address("user", "delete", teammate.pk), {"post": "yes"})
    assert set(User.objects.filter(pk__in=[administrator.pk, member.pk, teammate.pk])) == {administrator, member}


def test_another_person_s_password_can_be_set(person: Client, member: User):
    sent = {"usable_password": "true", "password1": "another-horse-42", "password2": "another-horse-42"}
    assert person.post(f"/admin/orchestrator/user/{member.pk}/password/", sent).status_code == 302
    member.refresh_from_db()
    assert member.check_password("another-horse-42")
