"""Clusters and nodes: what everybody sees, what administrators do, and the join command that is shown once."""

import re
from datetime import UTC, datetime, timedelta
from html import unescape

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from orchestrator import series
from orchestrator.models import Cluster, Event, Job, JoinToken, Node, User
from tests.factories import make_cluster, make_job, make_node, make_replica
from tests.pages.html import html_of
from worker_agent.protocol.states import JobStatus, ReplicaStatus

COMMAND = re.compile(r"join \S+ --token (ty_join_\S+)")
CLUSTER = {"name": "north", "description": "Ours", "port_first": "21000", "port_last": "21099", "environment": "A=1"}
SAMPLE = {
    "at": 0.0,
    "cpu_percent": 38.4,
    "memory_used_bytes": 4_000_000_000,
    "memory_total_bytes": 8_000_000_000,
    "network_sent_bps": 2_000_000.0,
    "network_received_bps": 3_100_000_000.0,
    "gpus": [{"index": 0, "utilisation": 91.0, "memory_bytes": 33_000_000_000, "temperature": 86.0, "power_w": 301.0}],
}


def text_of(answer) -> str:
    return unescape(html_of(answer))


@pytest.fixture
def yard(db: None) -> Cluster:
    return make_cluster("yard", description="Behind the house")


@pytest.fixture
def node(yard: Cluster) -> Node:
    return make_node(yard, "nh-01", slots=2, sample=SAMPLE)


@pytest.mark.parametrize("role", ["viewer", "member", "administrator"])
def test_everybody_sees_the_machines(request, client_of, role: str, yard: Cluster, node: Node):
    person = client_of(request.getfixturevalue(role))
    for address in ("/clusters/", "/clusters/yard/", "/clusters/yard/state/", "/nodes/", "/nodes/state/"):
        answer = person.get(address)
        assert answer.status_code == 200, address
        assert "yard" in text_of(answer) or "nh-01" in text_of(answer)
    assert "nh-01" in text_of(person.get(f"/nodes/{node.pk}/"))


@pytest.mark.parametrize("address", ["/clusters/", "/clusters/yard/", "/nodes/", "/nodes/000000000000/"])
def test_strangers_see_nothing(client: Client, db: None, address: str):
    assert client.get(address)["Location"].startswith("/sign-in/")


@pytest.mark.parametrize("address", ["/clusters/nowhere/", "/clusters/nowhere/state/", "/nodes/000000000000/"])
def test_what_is_not_there_is_404(client_of, member: User, address: str):
    assert client_of(member).get(address).status_code == 404


def test_the_table_shows_state_devices_and_load(client_of, viewer: User, yard: Cluster, node: Node):
    job = make_job(cluster=yard, status=JobStatus.RUNNING, name="busy")
    make_replica(job, node=node, devices=[0])
    make_node(yard, "gone", state="lost", state_reason="No heartbeat since 10:38.", sample=SAMPLE)
    text = text_of(client_of(viewer).get("/clusters/yard/"))
    assert "nh-01: 1 of 2 free" in text
    assert 'title="busy"' in text
    assert "38 %" in text
    assert "50 %" in text
    assert "gone is lost." in text
    assert text.count("38 %") == 1, "a lost node shows no stale load"


@pytest.mark.parametrize("name", ["nodes", "cluster"])
def test_nodes_come_in_pages(client_of, viewer: User, django_assert_max_num_queries, name: str):
    cluster = make_cluster("wide")
    for number in range(120):
        make_node(cluster, f"w{number:03d}", slots=1)
    client, address = client_of(viewer), reverse(name, args=["wide"] if name == "cluster" else [])
    with django_assert_max_num_queries(14):
        second = client.get(address, {"page": "2"})
    assert [row.node.name for row in second.context["rows"]] == [f"w{number:03d}" for number in range(50, 100)]
    page = html_of(second)
    assert "120 nodes" in page
    assert "51\u2013100 of 120" in page
    assert 'rel="prev" href="?page=1"' in page
    assert 'rel="next" href="?page=3"' in page
    assert "/state/?page=2" in page
    for beyond, shown in (("9", 20), ("x", 50), ("", 50)):
        assert len(client.get(address, {"page": beyond}).context["rows"]) == shown


def test_the_counts_of_the_side_bar_come_with_every_page_and_its_parts(client_of, viewer: User, yard: Cluster):
    job = make_job(cluster=yard, status=JobStatus.RUNNING)
    gone, person = make_node(yard, "gone", state="lost"), client_of(viewer)
    pages = [f"/jobs/{job.pk}/", "/clusters/yard/", "/nodes/", f"/nodes/{gone.pk}/"]
    for address in [*pages, *(f"{page}state/" for page in pages)]:
        text = text_of(person.get(address))
        assert text.count('id="count-jobs" title="1 under way">1<') == 1, address
        assert text.count(f'id="count-lost-{yard.pk}" title="1 silent">1<') == 1, address
    Job.objects.update(status=JobStatus.SUCCEEDED)
    assert 'id="count-jobs" title="0 under way" hidden>' in text_of(person.get("/nodes/state/"))


def test_the_node_page_shows_what_runs_and_ran(client_of, viewer: User, yard: Cluster):
    node = make_node(yard, "gpu-1", slots=2, kind="gpu", sample=SAMPLE)
    now = datetime.now(UTC)
    running = make_job(cluster=yard, status=JobStatus.RUNNING, name="busy")
    make_replica(running, node=node, devices=[0], device_kind="gpu", pid=4711)
    ended = make_job(cluster=yard, status=JobStatus.FAILED, name="earlier")
    make_replica(ended, node=node, status=ReplicaStatus.EXITED, ended_at=now - timedelta(minutes=3))
    Event.objects.create(node=node, kind="node_ready", text="<b>joined</b>")
    points = series.curve_of(
        [0, 0, 0], [now.timestamp() - 9, now.timestamp() - 6, now.timestamp() - 3], [1.0, 2.0, 3.0]
    )
    series.append([series.Addition(series.Owner(node_id=node.pk), "cpu_percent", points)])
    answer = client_of(viewer).get(f"/nodes/{node.pk}/")
    text = text_of(answer)
    for shown in ("4711", "busy", "earlier", "3.10", "GB/s", "91 %", "86 °C", "301 W", 'data-tone="red"', "2.21.0"):
        assert shown in text, shown
    assert "<b>joined" not in answer.content.decode()
    assert "ty-spark" in text
    assert 'data-chart="gpu_power"' in text
    assert 'data-open="drain"' not in text


@pytest.mark.parametrize(
    ("cause", "word"), [("completed", "Completed"), ("exception", "Failed"), ("stopped", "Stopped")]
)
def test_what_ran_before_says_how_it_ended(client_of, viewer: User, node: Node, cause: str, word: str):
    job = make_job(cluster=node.cluster, status=JobStatus.FAILED)
    make_replica(job, node=node, status=ReplicaStatus.EXITED, cause=cause, ended_at=datetime.now(UTC))
    text = text_of(client_of(viewer).get(f"/nodes/{node.pk}/"))
    assert f"</svg>{word}</span>" in text
    assert "Exited" not in text


def test_a_node_without_a_gpu_has_no_gpu_charts(client_of, viewer: User, node: Node):
    assert 'data-chart="gpu' not in text_of(client_of(viewer).get(f"/nodes/{node.pk}/"))


def test_names_are_never_html(client_of, administrator: User, db: None):
    place = make_cluster("place", description="<script>x</script>", checkpoint_place="<script>y</script>")
    node = make_node(place, "n", state="cordoned", state_reason="<script>z</script>")
    for address in ("/clusters/", "/clusters/place/", "/nodes/", f"/nodes/{node.pk}/"):
        assert not re.search("<script>[xyz]", client_of(administrator).get(address).content.decode())


def test_registering_a_cluster_shows_its_join_command_once(client_of, administrator: User):
    person = client_of(administrator)
    made = person.post("/clusters/", CLUSTER)
    cluster = Cluster.objects.get()
    assert (made.status_code, made["Location"]) == (302, "/clusters/north/#join")
    assert (cluster.port_first, cluster.port_last, cluster.environment) == (21000, 21099, {"A": "1"})
    first = person.get("/clusters/north/")
    command = COMMAND.search(text_of(first))
    assert command is not None
    assert JoinToken.objects.get().cluster == cluster
    assert command[1] not in str(JoinToken.objects.values().get())
    assert "no-store" in first["Cache-Control"]
    assert COMMAND.search(text_of(person.get("/clusters/north/"))) is None


@pytest.mark.parametrize(
    ("url", "loopback"),
    [
        ("http://127.0.0.1:8000", True),
        ("http://localhost:8000", True),
        ("http://[::1]:8000", True),
        ("https://yard.example.org", False),
        ("http://10.0.4.1:8000", False),
    ],
)
def test_an_address_of_this_machine_only_is_named_as_such(
    client_of, administrator: User, yard: Cluster, settings, url: str, loopback: bool
):
    settings.PUBLIC_URL = url
    person = client_of(administrator)
    person.post("/clusters/yard/join/")
    shown = text_of(person.get("/clusters/yard/"))
    assert f".venv/bin/python -m worker_agent join {url} --token" in shown
    assert "make agent" in shown
    assert ("This address works on this machine only" in shown) == loopback


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("name", "", "1 to 63 letters"),
        ("name", "no spaces here", "letters, digits, hyphens and underscores"),
        ("name", "-first", "a letter or digit first"),
        ("name", "_first", "a letter or digit first"),
        ("name", "yard", "already"),
        ("address_range", "10.0.0.0/99", "Write a range such as"),
        ("interface", "eth 1", "Write a network interface"),
        ("port_first", "80", "1024"),
        ("port_last", "x", "integer"),
        ("port_last", "20500", "must not be below the first"),
        ("environment", "NAME", "Line 1 is not of the form"),
        ("environment", "TF_CONFIG=1", "set by Trainyard"),
    ],
)
def test_each_error_of_a_cluster_stands_at_its_field(
    client_of, administrator: User, yard: Cluster, field: str, value: str, words: str
):
    sent = CLUSTER | {field: value}
    answer = client_of(administrator).post("/clusters/", sent)
    text = text_of(answer)
    assert answer.status_code == 422
    wrong = re.search(rf'id="f-{field}-e">([^<]*)<', text)
    assert wrong is not None
    assert words in wrong[1]
    for name, typed in sent.items():
        assert typed in text, name
    assert Cluster.objects.count() == 1


def test_a_further_node_gets_a_command_of_its_own(client_of, administrator: User, yard: Cluster):
    person = client_of(administrator)
    found = set()
    for _ in range(2):
        assert person.post("/clusters/yard/join/").status_code == 302
        found.add(COMMAND.search(text_of(person.get("/clusters/yard/")))[1])
    assert len(found) == 2
    assert person.get("/clusters/yard/join/").status_code == 405


@pytest.mark.parametrize("role", ["viewer", "member"])
def test_only_administrators_change_machines(request, client_of, role: str, yard: Cluster, node: Node):
    person = client_of(request.getfixturevalue(role))
    assert person.post("/clusters/", CLUSTER).status_code == 403
    assert person.post("/clusters/yard/join/").status_code == 403
    for action in ("cordon", "uncordon", "drain", "rename", "remove"):
        answer = person.post(f"/nodes/{node.pk}/{action}/", {"confirm": node.name, "name": "other"})
        assert answer.status_code == 403, action
        assert person.post(f"/nodes/{node.pk}/{action}/").status_code == 403, (action, "with nothing typed")
    node.refresh_from_db()
    assert (node.state, node.name) == ("ready", "nh-01")
    assert (Cluster.objects.count(), JoinToken.objects.count()) == (1, 0)
    assert "Register" not in text_of(person.get("/clusters/"))


def test_cordon_and_uncordon(client_of, administrator: User, node: Node):
    person = client_of(administrator)
    page = person.post(f"/nodes/{node.pk}/cordon/", {"reason": "driver update"}, follow=True)
    assert "nh-01 is cordoned" in text_of(page)
    assert "driver update" in text_of(page)
    node.refresh_from_db()
    assert node.state == "cordoned"
    assert Event.objects.filter(node=node, actor=administrator).exists()
    person.post(f"/nodes/{node.pk}/uncordon/")
    node.refresh_from_db()
    assert node.state == "ready"


def test_the_actions_are_the_same_again_until_something_changes(client_of, administrator: User, node: Node):
    node.state = "cordoned"
    node.save()
    person = client_of(administrator)
    answers = [person.get(f"/nodes/{node.pk}/state/").content.decode() for _ in range(2)]
    (actions,) = {answer[answer.index('id="node-actions"') :].partition("</div>")[0] for answer in answers}
    assert f'form="act" formaction="/nodes/{node.pk}/uncordon/"' in " ".join(actions.split())


@pytest.mark.parametrize("action", ["drain", "remove"])
@pytest.mark.parametrize("typed", ["", "nh-02"])
def test_draining_and_removing_ask_for_the_typed_name(
    client_of, administrator: User, node: Node, action: str, typed: str
):
    page = client_of(administrator).post(f"/nodes/{node.pk}/{action}/", {"confirm": typed}, follow=True)
    assert "Nothing was done: type nh-01 to confirm." in text_of(page)
    node.refresh_from_db()
    assert node.state == "ready"


def test_drain_and_remove(client_of, administrator: User, node: Node):
    person = client_of(administrator)
    person.post(f"/nodes/{node.pk}/drain/", {"confirm": "nh-01"})
    node.refresh_from_db()
    assert node.state == "draining"
    assert person.post(f"/nodes/{node.pk}/remove/", {"confirm": "nh-01"})["Location"] == "/clusters/yard/"
    assert not Node.objects.exists()


def test_a_node_that_runs_something_is_not_removed(client_of, administrator: User, yard: Cluster, node: Node):
    job = make_job(cluster=yard, status=JobStatus.RUNNING)
    make_replica(job, node=node)
    page = client_of(administrator).post(f"/nodes/{node.pk}/remove/", {"confirm": "nh-01"}, follow=True)
    assert f"still runs j-{job.pk}" in text_of(page)
    assert Node.objects.exists()


def test_rename(client_of, administrator: User, yard: Cluster, node: Node):
    person = client_of(administrator)
    make_node(yard, "taken")
    person.post(f"/nodes/{node.pk}/rename/", {"name": "fresh"})
    node.refresh_from_db()
    assert node.name == "fresh"
    for bad, words in (("taken", "has a node taken already"), ("no good", "name")):
        assert words in text_of(person.post(f"/nodes/{node.pk}/rename/", {"name": bad}, follow=True))
    node.refresh_from_db()
    assert node.name == "fresh"


def test_what_is_no_action_is_404(client_of, administrator: User, node: Node):
    assert client_of(administrator).post(f"/nodes/{node.pk}/explode/").status_code == 404
    assert client_of(administrator).get(f"/nodes/{node.pk}/cordon/").status_code == 405


def test_pages_hold_no_inline_script_or_style(client_of, administrator: User, yard: Cluster, node: Node):
    person = client_of(administrator)
    for address in ("/clusters/", "/clusters/yard/", "/nodes/", f"/nodes/{node.pk}/", "/jobs/new/", "/account/tokens/"):
        text = person.get(address).content.decode()
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|<script(?![^>]*\ssrc=)|javascript:", text), address


def test_500_nodes_cost_pages_that_name_a_few_little(client_of, member: User, yard: Cluster):
    Node.objects.bulk_create(Node(cluster=yard, name=f"n-{number:03}", address="10.0.0.1") for number in range(500))
    person = client_of(member)
    with CaptureQueriesContext(connection) as asked:
        found = person.get("/jobs/find/?q=N-4").json()["items"]
    assert len(found) <= 20
    assert not any('"inventory"' in query["sql"] for query in asked)
    with CaptureQueriesContext(connection) as asked:
        person.get("/jobs/new/")
    everything = [query["sql"] for query in asked if '"orchestrator_node"."inventory",' in query["sql"]]
    assert all('"cluster_id" = ' in sql for sql in everything), "only the cluster that the job is placed on"
    pages = [person.get(f"/api/v1/nodes{query}").json() for query in ("", "?offset=100&limit=500", "?offset=500")]
    assert [len(page) for page in pages] == [100, 400, 0]
    assert pages[0][-1]["name"] < pages[1][0]["name"]
    assert person.get("/api/v1/nodes?limit=501").status_code == 422
    assert person.get("/jobs/find/?q=%00").status_code == 200


def test_the_form_counts_the_free_devices_of_nodes_that_take_jobs(client_of, member: User, node: Node):
    make_node(node.cluster, "nh-02", slots=4, state="cordoned")
    make_replica(make_job(cluster=node.cluster, status=JobStatus.RUNNING), node=node, devices=[0])
    make_node(node.cluster, "nh-03", slots=8)
    assert "yard (9 free)" in text_of(client_of(member).get("/jobs/new/"))
