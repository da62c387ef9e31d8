"""The overview: what runs, waits, failed and is lost, for everybody who is signed in."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from orchestrator import series
from orchestrator.models import User
from tests.environment import ON_POSTGRES
from tests.factories import make_cluster, make_job, make_node, make_replica
from worker_agent.protocol.states import JobStatus, NodeState

NASTY = "<script>alert('x')</script>"
Browser = Callable[[User], Client]


def test_a_stranger_is_led_to_the_sign_in(client: Client, db: None) -> None:
    assert client.get(reverse("overview")).headers["Location"].startswith("/sign-in/")


@pytest.mark.parametrize("who", ["viewer", "member", "administrator"])
def test_an_empty_yard_names_the_next_step(who: str, request: pytest.FixtureRequest, client_of: Browser) -> None:
    page = client_of(request.getfixturevalue(who)).get(reverse("overview")).content.decode()
    assert "No machine has joined yet." in page
    assert ("Register a cluster" in page) == (who == "administrator")
    assert ("No job yet" in page) == (who != "viewer")


def test_what_runs_and_what_waits(client_of: Browser, member: User) -> None:
    running = make_job(owner=member, name="runner", status=JobStatus.RUNNING, step=30, total_steps=120)
    make_job(owner=member, name="waiter", waiting_for="Needs 8 free devices; 2 are free.")
    replica = make_replica(running)
    points = series.curve_of([1, 2, 3], [1.0, 2.0, 3.0], [3.0, 2.0, float("nan")])
    series.append([series.Addition(series.Owner(replica_id=replica.pk), "loss", points)])
    answer = client_of(member).get(reverse("overview"))
    page = answer.content.decode()
    assert [item["row"].job.name for item in answer.context["running"]] == ["runner"]
    assert 'value="25.0"' in page
    assert "ty-spark" in page
    assert "Needs 8 free devices; 2 are free." in page


def test_devices_and_attention(client_of: Browser, member: User) -> None:
    now = datetime.now(UTC)
    cluster = make_cluster("hall")
    held, lost = make_node(cluster, "n-1", slots=4), make_node(cluster, "n-2", slots=2)
    lost.state = NodeState.LOST.value
    lost.save()
    make_replica(make_job(owner=member, cluster=cluster, status=JobStatus.RUNNING), node=held, devices=[0, 1, 2])
    broken = {"status": JobStatus.FAILED, "cluster": cluster, "owner": member}
    failed = make_job(name=NASTY, ended_at=now, reason=f"worker 0 on n-1 failed: {NASTY}", **broken)
    make_job(name="long ago", ended_at=now - timedelta(days=2), reason="It was old.", **broken)
    answer = client_of(member).get(reverse("overview"))
    page = answer.content.decode()
    tiles = {tile.label: tile for tile in answer.context["tiles"]}
    assert (tiles["Devices in use"].figure, tiles["Devices in use"].unit) == ("3", "of 6")
    assert tiles["Devices in use"].note == "1 free, 2 lost"
    assert tiles["Failed, last 24 h"].figure == "1"
    assert [item.title for item in answer.context["attention"]] == ["n-2 has been silent since", NASTY]
    assert f"j-{failed.pk}</span>" in page
    assert NASTY not in page
    assert "long ago" not in page


def test_counts_are_of_all_and_rows_of_the_first(client_of: Browser, member: User) -> None:
    now, broken = datetime.now(UTC), {"owner": member, "cluster": make_cluster("hall"), "status": JobStatus.FAILED}
    for number in range(14):
        make_node(broken["cluster"], f"n-{number:02d}", state=NodeState.LOST if number > 11 else NodeState.READY)
        make_job(ended_at=now - timedelta(minutes=number), name=f"fell {number:02d}", **broken)
    answer = client_of(member).get(reverse("overview"))
    (shown,) = answer.context["clusters"]
    assert [node.name for node, _ in shown.nodes] == [f"n-{number:02d}" for number in range(12)]
    assert (shown.more, shown.devices, shown.counts["lost"], shown.counts["free"]) == (2, 28, 4, 24)
    assert [tile.note for tile in answer.context["tiles"]][-1] == "of 14 finished"
    titles = [item.title for item in answer.context["attention"]]
    assert titles == [f"n-{number} has been silent since" for number in (12, 13)] + [f"fell 0{n}" for n in range(4)]
    assert answer.context["attention_count"] == 16


@pytest.mark.skipif(ON_POSTGRES, reason="reads the plans of SQLite")
def test_no_query_goes_through_the_history(client_of: Browser, member: User) -> None:
    """Neither through all jobs or processes, nor through all that failed or ever ran on the nodes shown."""
    make_node(make_cluster("hall"), "n-1")
    client = client_of(member)
    with CaptureQueriesContext(connection) as asked:
        client.get(reverse("overview"))
    plans = {}
    with connection.cursor() as cursor:
        for query in asked.captured_queries:
            if query["sql"].startswith("SELECT"):
                cursor.execute(f"EXPLAIN QUERY PLAN {query['sql']}")
                plans[query["sql"]] = " ".join(row[-1] for row in cursor.fetchall())
    for sql, plan in plans.items():
        through = re.search(
            r"SCAN orchestrator_(job|replica|attempt|event)\b(?! USING INDEX replica_held_on_node)", plan
        )
        assert not through or "LIMIT" in sql, sql
        assert ("job_by_outcome (status=? AND ended_at>?)" in plan) is ('"ended_at" >=' in sql), sql
        assert "replica_held_on_node" in plan or '"node_id" IN' not in sql, sql
        assert ("COVERING INDEX node_by_state" in plan) is ("'lost') AS \"lost\"" in sql), sql


def test_queries_stay_few(
    client_of: Browser, member: User, django_assert_max_num_queries: Callable[[int], object]
) -> None:
    cluster = make_cluster()
    for number in range(20):
        make_node(cluster, f"n-{number}")
        make_job(owner=member, cluster=cluster, status=JobStatus.FAILED, ended_at=datetime.now(UTC))
        make_job(owner=member, cluster=cluster)
    client = client_of(member)
    client.get(reverse("overview"))
    with django_assert_max_num_queries(16):  # type: ignore[attr-defined]
        client.get(reverse("overview"))
