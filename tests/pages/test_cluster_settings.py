"""The settings of a cluster: who changes them, what is refused at which field, and what the history says."""

from html import unescape

import pytest
from django.test import Client

from orchestrator.models import Cluster, Event, JoinToken, User
from orchestrator.services.nodes import joining
from tests.factories import make_cluster, make_job, make_node
from tests.pages.html import html_of

SENT = {
    "name": "north",
    "description": "Ours",
    "address_range": "10.0.4.0/24",
    "interface": "",
    "port_first": "21000",
    "port_last": "21099",
    "checkpoint_place": "/ckpt",
    "environment": "A=1\nB=two",
}
PAGE = "/clusters/north/settings/"


def text_of(answer) -> str:
    return unescape(html_of(answer))


@pytest.fixture
def ada(administrator: User, client_of) -> Client:
    return client_of(administrator)


@pytest.fixture
def north(db: None) -> Cluster:
    return make_cluster(
        "north", port_first=20000, port_last=20999, environment={"A": "0", "SECRET": "hush", "B": "two"}
    )


@pytest.mark.parametrize("role", ["viewer", "member"])
def test_they_are_for_administrators(request, client_of, role: str, north: Cluster):
    person = client_of(request.getfixturevalue(role))
    assert PAGE not in text_of(person.get("/clusters/north/"))
    assert person.get(PAGE).status_code == 403
    assert person.post(PAGE, SENT).status_code == 403
    assert person.post("/clusters/north/delete/", {"confirm": "north"}).status_code == 403
    assert not Event.objects.exists()


def test_the_page_shows_what_is_set_and_what_becomes_of_what_runs(ada: Client, north: Cluster):
    assert PAGE in text_of(ada.get("/clusters/north/"))
    text = text_of(ada.get(PAGE))
    assert 'value="20999"' in text
    assert "SECRET=hush" in text
    assert "Processes that run keep what they were launched with" in text
    assert ada.get("/clusters/nowhere/settings/").status_code == 404


def test_a_change_is_told_with_what_was_before_but_no_values_of_variables(
    ada: Client, administrator: User, north: Cluster
):
    assert ada.post(PAGE, SENT)["Location"] == "/clusters/north/"
    north.refresh_from_db()
    assert (north.port_last, north.environment, north.checkpoint_place) == (21099, {"A": "1", "B": "two"}, "/ckpt")
    event = Event.objects.get()
    assert (event.kind, event.actor) == ("cluster_changed", administrator)
    assert event.text == (
        "Cluster north was changed: description was empty, is Ours; address range was empty, is 10.0.4.0/24; "
        "checkpoint place was empty, is /ckpt; environment: SECRET removed, A changed; "
        "port first was 20000, is 21000; port last was 20999, is 21099."
    )
    ada.post(PAGE, SENT)
    assert Event.objects.count() == 1, "nothing changed"


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("address_range", "nonsense", "Write a range such as"),
        ("interface", "eth 1", "Write a network interface"),
        ("port_last", "20000", "must not be below the first"),
        ("port_first", "80", "greater than or equal to 1024"),
        ("port_first", "many", "must be an integer"),
        ("environment", "A", "Line 1 is not of the form"),
        ("environment", "TF_CONFIG=1", "set by Trainyard"),
        ("name", "with space", "letters, digits, hyphens"),
        ("name", "taken", "already"),
        ("checkpoint_place", "relative", "absolute path"),
    ],
)
def test_what_is_wrong_stands_at_its_field(ada: Client, north: Cluster, field: str, value: str, words: str):
    make_cluster("taken")
    answer = ada.post(PAGE, SENT | {field: value})
    assert answer.status_code == 422
    text = text_of(answer)
    assert words in text.split(f'id="f-{field}-e"')[1].split("</div>")[0]
    assert "Settings of north" in text
    assert not Event.objects.exists()


def test_a_cluster_with_jobs_keeps_its_name(ada: Client, north: Cluster):
    make_job(cluster=north)
    assert "readonly" in text_of(ada.get(PAGE))
    answer = ada.post(PAGE, SENT | {"name": "south"})
    assert "can no longer be renamed" in text_of(answer)
    north.refresh_from_db()
    assert (north.name, north.port_last) == ("north", 20999)


def test_a_cluster_without_jobs_takes_a_new_name(ada: Client, north: Cluster):
    assert ada.post(PAGE, SENT | {"name": "south"})["Location"] == "/clusters/south/"
    assert "Cluster north was changed: name was north, is south" in Event.objects.get().text


def test_only_an_empty_cluster_can_be_deleted_by_its_name(ada: Client, administrator: User, north: Cluster):
    used, busy = make_cluster("used"), make_cluster("busy")
    make_node(used)
    make_job(cluster=busy)
    joining.create_join_token(cluster=north, by=administrator)
    for name in ("used", "busy"):
        assert 'data-open="delete"' not in text_of(ada.get(f"/clusters/{name}/settings/"))
        assert "cannot be deleted" in text_of(ada.post(f"/clusters/{name}/delete/", {"confirm": name}, follow=True))
    ada.post("/clusters/north/delete/", {"confirm": "nort"})
    assert Cluster.objects.filter(name="north").exists()
    ada.post("/clusters/north/delete/", {"confirm": "north"})
    assert set(Cluster.objects.all()) == {used, busy}
    assert not JoinToken.objects.exists()
    assert Event.objects.get(kind="cluster_deleted").actor == administrator
