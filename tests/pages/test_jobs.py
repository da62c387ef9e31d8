"""The list of jobs: who sees it, filters, search, pages, and that what people wrote stays text."""

from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import reverse

from dashboard.views.job import row
from orchestrator.domain.lifecycle import LIVE_JOB
from orchestrator.models import Job, User
from orchestrator.queries.jobs import counts, page
from tests.factories import make_cluster, make_job, make_node
from worker_agent.protocol.states import JobStatus, Strategy

NASTY = "<script>alert('x')</script>"
Browser = Callable[[User], Client]


def listed(client: Client, **asked: object) -> list[str]:
    """The names in the list, in order."""
    answer = client.get(reverse("jobs"), asked)
    assert answer.status_code == 200
    return [each.job.name for each in answer.context["rows"]]


def test_a_stranger_is_led_to_the_sign_in(client: Client, db: None) -> None:
    answer = client.get(reverse("jobs"), {"status": "failed"})
    assert answer.status_code == 302
    assert answer.headers["Location"].startswith("/sign-in/?next=/jobs/")


@pytest.mark.parametrize("who", ["viewer", "member", "administrator"])
def test_everybody_sees_every_job_and_only_those_who_may_get_the_button(
    who: str, request: pytest.FixtureRequest, client_of: Browser, member: User
) -> None:
    make_job(owner=member, name="first")
    answer = client_of(request.getfixturevalue(who)).get(reverse("jobs"))
    page = answer.content.decode()
    assert "first" in page
    assert (reverse("job_new") in page) == (who != "viewer")


def test_an_empty_list_says_what_to_do(client_of: Browser, member: User, viewer: User) -> None:
    assert "A job is a program and the devices it may use." in client_of(member).get(reverse("jobs")).content.decode()
    assert "Nobody has started one." in client_of(viewer).get(reverse("jobs")).content.decode()


def test_the_loss_is_found_by_its_name(client_of: Browser, member: User) -> None:
    make_job(owner=member, metrics={"Train/loss": 0.25, "acc": 0.5})
    (row,) = client_of(member).get(reverse("jobs")).context["rows"]
    assert (row.value, row.metric) == (0.25, "Train/loss")


@pytest.mark.parametrize(("step", "said"), [(0, ""), (1, "1 step"), (1200, "1 200 steps")])
def test_a_job_that_counted_no_steps_says_nothing_of_them(
    client_of: Browser, member: User, step: int, said: str
) -> None:
    make_job(owner=member, status=JobStatus.SUCCEEDED, step=step)
    page = " ".join(
        client_of(member).get(reverse("jobs")).content.decode().replace("\N{NARROW NO-BREAK SPACE}", " ").split()
    )
    assert "0 steps<" not in page.replace("1 200 steps", "")
    assert said in page


def test_names_stay_text(client_of: Browser, member: User) -> None:
    make_job(owner=member, name=NASTY, waiting_for=NASTY)
    page = client_of(member).get(reverse("jobs"), {"search": NASTY}).content.decode()
    assert NASTY not in page
    assert "&lt;script&gt;alert" in page


def test_filters_hold_together(client_of: Browser, member: User, teammate: User) -> None:
    north, south = make_cluster("north"), make_cluster("south")
    make_job(owner=member, cluster=north, name="a", status=JobStatus.RUNNING)
    make_job(owner=teammate, cluster=north, name="b", status=JobStatus.FAILED)
    make_job(
        owner=member, cluster=south, name="c", status=JobStatus.SUCCEEDED, spec={"strategy": Strategy.PARAMETER_SERVER}
    )
    make_job(owner=member, cluster=south, name="d")
    client = client_of(member)
    assert listed(client) == ["d", "c", "b", "a"]
    assert listed(client, status="active") == ["d", "a"]
    assert listed(client, status="failed") == ["b"]
    assert listed(client, owner="mel") == ["d", "c", "a"]
    assert listed(client, cluster="south") == ["d", "c"]
    assert listed(client, strategy="parameter_server") == ["c"]
    assert listed(client, cluster="south", status="active", owner="mel") == ["d"]
    assert listed(client, status="nonsense", strategy="nonsense") == ["d", "c", "b", "a"]
    assert listed(client, owner="nobody") == []


def test_search_takes_part_of_a_name_or_a_number(client_of: Browser, member: User) -> None:
    first = make_job(owner=member, name="digits small")
    make_job(owner=member, name="letters")
    client = client_of(member)
    assert listed(client, search="DIGITS") == ["digits small"]
    assert listed(client, search=f"j-{first.pk}") == ["digits small"]
    assert "No job matches" in client.get(reverse("jobs"), {"search": "zebra"}).content.decode()


def test_the_status_choices_count_and_keep_the_other_filters(client_of: Browser, member: User) -> None:
    make_job(owner=member, status=JobStatus.RUNNING)
    make_job(owner=member, status=JobStatus.FAILED)
    choices = client_of(member).get(reverse("jobs"), {"owner": "mel"}).context["choices"]
    assert [(choice["label"], choice["count"]) for choice in choices][:4] == [
        ("All", 2),
        ("Active", 1),
        ("Succeeded", 0),
        ("Failed", 1),
    ]
    assert choices[3]["address"] == "/jobs/?status=failed&owner=mel"


def test_older_and_newer_meet(client_of: Browser, member: User) -> None:
    cluster = make_cluster()
    for number in range(120):
        make_job(owner=member, cluster=cluster, name=f"job {number}", status=JobStatus.STOPPED)
    client = client_of(member)
    first = client.get(reverse("jobs"), {"status": "stopped"})
    second = client.get(first.context["older"])
    third = client.get(second.context["older"])
    names = [row.job.name for page in (first, second, third) for row in page.context["rows"]]
    assert names == [f"job {number}" for number in reversed(range(120))]
    assert first.context["newer"] == "" == third.context["older"]
    back = client.get(third.context["newer"])
    assert [row.job.pk for row in back.context["rows"]] == [row.job.pk for row in second.context["rows"]]
    start = client.get(back.context["newer"])
    assert [row.job.pk for row in start.context["rows"]] == [row.job.pk for row in first.context["rows"]]
    assert start.context["newer"] == ""


@pytest.mark.parametrize("cursor", ["", "x", "-1", "9" * 40, "1.5", "²"])
def test_a_cursor_that_is_none_begins_at_the_front(cursor: str, client_of: Browser, member: User) -> None:
    make_job(owner=member, name="only")
    assert listed(client_of(member), before=cursor, after=cursor) == ["only"]


def test_the_number_of_queries_does_not_grow_with_the_list(
    client_of: Browser, member: User, django_assert_max_num_queries: Callable[[int], object]
) -> None:
    cluster = make_cluster()
    for number in range(40):
        make_job(owner=member, cluster=cluster, name=str(number))
    client = client_of(member)
    client.get(reverse("jobs"))
    with django_assert_max_num_queries(11):  # type: ignore[attr-defined]
        client.get(reverse("jobs"))


def test_rows_that_look_the_same_are_printed_once(client_of: Browser, member: User) -> None:
    """And a row that changed, whatever of it, is printed anew."""
    job = make_job(owner=member, name="one", status=JobStatus.SUCCEEDED, metrics={"loss": 0.5}, tags=["a"])
    make_job(owner=member, name="two", status=JobStatus.SUCCEEDED)
    client, made = client_of(member), row._html.cache_info
    client.get(reverse("jobs"))
    before = made().misses
    assert client.get(reverse("jobs")).content.count(b"data-job=") == 2
    assert made().misses == before
    for changed, shown in (
        ({"metrics": {"loss": 0.25}}, "0.2500"),
        ({"tags": ["b"]}, ">b</a>"),
        ({"name": "1st"}, "1st"),
    ):
        Job.objects.filter(pk=job.pk).update(**changed)
        assert shown in client.get(reverse("jobs")).content.decode()
    User.objects.filter(pk=member.pk).update(username="renamed")
    assert '<td class="hide-lg">renamed</td>' in client.get(reverse("jobs")).content.decode()


def test_a_list_loads_no_more_of_owner_and_cluster_than_their_names(member: User) -> None:
    make_job(owner=member, notes="long")
    (job,) = page(member).items
    assert job.owner.get_deferred_fields() >= {"password", "email", "last_login"}
    assert job.cluster.get_deferred_fields() >= {"environment", "description"}
    assert job.get_deferred_fields() == {"notes"}


@pytest.mark.parametrize("live", [True, False])
def test_every_status_is_counted(member: User, live: bool) -> None:
    for number, status in enumerate(JobStatus, start=1):
        for _ in range(number):
            make_job(owner=member, status=status)
    found = counts(member, live=live)
    assert found == {s.value: n if not live or s in LIVE_JOB else 0 for n, s in enumerate(JobStatus, start=1)}


def test_the_palette_finds_jobs_and_nodes(client_of: Browser, member: User) -> None:
    job = make_job(owner=member, name=NASTY)
    node = make_node(name="script-node")
    items = client_of(member).get(reverse("job_find"), {"q": "script"}).json()["items"]
    assert items == [
        {
            "icon": "jobs",
            "label": NASTY,
            "hint": f"j-{job.pk}, submitted",
            "href": reverse("job", args=[job.pk]),
            "id": job.pk,
        },
        {"icon": "node", "label": "script-node", "hint": "Ready", "href": reverse("node", args=[node.pk])},
    ]
    assert client_of(member).get(reverse("job_find"), {"q": "zebra"}).json() == {"items": []}
    assert client_of(member).get(reverse("job_find"), {"q": "script", "only": "jobs"}).json() == {"items": items[:1]}
