"""Devices and ports that were not given back, as people see them: node page, lists, REST, administration."""

from html import unescape

import pytest

from orchestrator.models import Event, Node, User
from tests.api.conftest import Caller, calls_as  # noqa: F401
from tests.factories import make_cluster, make_dirty, make_inventory, make_node
from tests.pages.html import html_of
from worker_agent.protocol.codec import plain

LEFT = ["process 4711 (<b>python)", "3.2 GB of GPU 1, held for process 4711"]
DIRTY = [make_dirty("GPU 1", device=1, left=LEFT), make_dirty("port 20003", port=20003, left=LEFT)]


@pytest.fixture
def node(db: None) -> Node:
    inventory = plain(make_inventory(slots=2, kind="gpu", hostname="nh-01"))
    return make_node(make_cluster("yard"), "nh-01", inventory=inventory, dirty=DIRTY)


def text_of(answer) -> str:
    return unescape(html_of(answer))


def test_the_node_page_says_what_is_not_used_and_what_holds_it(client_of, viewer: User, node: Node):
    person = client_of(viewer)
    for address in (f"/nodes/{node.pk}/", f"/nodes/{node.pk}/state/"):
        raw = html_of(person.get(address))
        page = unescape(raw)
        assert "2 of this node's devices and ports are not used." in page
        assert "GPU 1, since" in page
        assert "Port 20003, since" in page
        assert "3.2 GB of GPU 1, held for process 4711, of worker 1 in" in page
        assert "<b>python" not in raw
        assert 'data-state="dirty" data-device="1"' in page
        assert "Use again…" not in page
    for address in ("/nodes/", "/clusters/yard/", "/"):
        page = text_of(person.get(address))
        assert 'data-state="dirty"' in page, address
        assert "Dirty" in page, address
    assert "1 free, 1 dirty" in text_of(person.get("/"))


def test_a_clean_node_says_nothing_of_it(client_of, viewer: User, node: Node):
    Node.objects.filter(pk=node.pk).update(dirty=[])
    page = text_of(client_of(viewer).get(f"/nodes/{node.pk}/"))
    assert "not used" not in page
    assert "Dirty" not in page


def test_an_administrator_uses_it_again_with_a_reason(client_of, administrator: User, member: User, node: Node):
    assert client_of(member).post(f"/nodes/{node.pk}/reclaim/").status_code == 403
    person = client_of(administrator)
    assert "Use again…" in text_of(person.get(f"/nodes/{node.pk}/"))
    page = person.post(f"/nodes/{node.pk}/reclaim/", {"reason": "looked at it"}, follow=True)
    assert "All devices and ports of nh-01 are used again." in text_of(page)
    event = Event.objects.get(node=node, kind="device_reclaimed")
    assert event.actor == administrator
    assert event.text == "ada took GPU 1, port 20003 of nh-01 into use again: looked at it."
    assert Node.objects.get(pk=node.pk).dirty == []


def test_rest_tells_and_reclaims(viewer: User, administrator: User, calls_as: Caller, node: Node):  # noqa: F811
    found = calls_as(viewer).get(f"/nodes/{node.pk}").json()
    assert [device["state"] for device in found["devices"]] == ["free", "dirty"]
    assert [(each["name"], each["device"], each["port"], each["job"]) for each in found["dirty"]] == [
        ("GPU 1", 1, None, 3),
        ("port 20003", None, 20003, 3),
    ]
    assert found["dirty"][0]["left"] == LEFT
    assert calls_as(viewer).post(f"/nodes/{node.pk}/reclaim").status_code == 403
    assert calls_as(administrator).post("/nodes/0123456789ab/reclaim").status_code == 404
    assert calls_as(administrator).post(f"/nodes/{node.pk}/reclaim", {"reason": "ok"}).json()["dirty"] == []


def test_the_administration_shows_and_reclaims(client_of, administrator: User, node: Node):
    person = client_of(administrator)
    place = "/admin/orchestrator/node/"
    assert "port 20003: process 4711" in text_of(person.get(f"{place}{node.pk}/change/"))
    answer = person.post(place, {"action": "reclaim", "_selected_action": [node.pk]}, follow=True)
    assert "nh-01 is used as a whole again." in text_of(answer)
    assert Node.objects.get(pk=node.pk).dirty == []
