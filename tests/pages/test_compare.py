"""Jobs side by side: who is in, what is marked, what differs, and what the curves are drawn from."""

import io
import zipfile
from collections.abc import Callable

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from orchestrator import series
from orchestrator.models import User
from tests.factories import RECIPE, make_cluster, make_code, make_job, make_replica
from tests.pages.html import html_of
from worker_agent.protocol.states import JobStatus

Browser = Callable[[User], Client]


def test_a_selection_becomes_an_address_to_share(client_of: Browser, member: User, viewer: User) -> None:
    ids = [make_job(owner=member, name=name).pk for name in "ab"]
    answer = client_of(member).get(reverse("compare"), {"jobs": ids})
    address = f"{reverse('compare')}?jobs={ids[0]},{ids[1]}"
    assert (answer.status_code, answer.headers["Location"]) == (302, address)
    page = html_of(client_of(viewer).get(f"{address},99"))
    assert "Compare 2 jobs" in page
    assert "j-99 is not there: it was deleted, or you may not see it." in page


def test_more_than_twenty_are_left_out_and_told(client_of: Browser, member: User) -> None:
    ids = ",".join(str(make_job(owner=member).pk) for _ in range(21))
    page = html_of(client_of(member).get(reverse("compare"), {"jobs": ids}))
    assert "Only the first 20 jobs are compared; 1 more were left out." in page
    assert "Nothing to compare" in html_of(client_of(member).get(reverse("compare")))


def test_the_best_is_marked_and_what_differs_comes_first(client_of: Browser, member: User) -> None:
    ids = []
    for loss, epochs in ((0.5, 3), (0.2, 4)):
        metrics = {"loss": loss, "val_accuracy": 1 - loss, "odd": loss}
        ids.append(make_job(owner=member, metrics=metrics, spec={"epochs": epochs}).pk)
    answer = client_of(member).get(reverse("compare"), {"jobs": f"{ids[0]},{ids[1]}"})
    best = {line.label: line.best for line in answer.context["results"]}
    assert (best["Loss"], best["Validation accuracy"], best["Odd"]) == ({1}, {1}, set())
    assert [line.label for line in answer.context["differing"]] == ["Epochs"]
    assert answer.context["diffs"] == []
    assert "All run the same program." in html_of(answer)


def test_programs_are_compared_by_line_and_archives_by_file(client_of: Browser, member: User) -> None:
    plain, other = make_job(owner=member), make_job(owner=member)
    other.code = make_code(RECIPE.replace(b"Dense(", b"Dense(2 * "), "other.py")
    other.save()
    packed = make_job(owner=member)
    with zipfile.ZipFile(content := io.BytesIO(), "w") as archive:
        archive.writestr("<b>.py", "x")
    packed.code = make_code(content.getvalue(), "p.zip")
    packed.code.archive = True
    packed.code.save()
    packed.save()
    answer = client_of(member).get(reverse("compare"), {"jobs": f"{plain.pk},{other.pk},{packed.pk}"})
    by_line, by_file = (diff["lines"] for diff in answer.context["diffs"])
    assert [kind for kind, _ in by_line if kind in ("add", "del")] == ["del", "add"]
    assert by_file == [("del", "- one file"), ("add", "+ <b>.py")]
    assert "&lt;b&gt;.py" in answer.content.decode()


def test_curves_join_the_attempts_of_the_leader(client_of: Browser, member: User) -> None:
    job = make_job(owner=member, status=JobStatus.SUCCEEDED, attempt=2, total_steps=10)
    for attempt, steps in ((1, [1, 2, 3]), (2, [3, 4])):
        for index in (0, 1):
            owner = series.Owner(make_replica(job, attempt=attempt, index=index).pk)
            value = float("nan") if attempt == 2 else 1.0 + index
            curve = series.curve_of(steps, [float(step) for step in steps], [value] * len(steps))
            series.append([series.Addition(owner, "loss", curve)])
    answer = client_of(member).get(reverse("compare_curves"), {"jobs": f"{job.pk},99"})
    (found,) = answer.json()["jobs"]
    assert found["series"] == {"loss": {"steps": [1, 2, 3, 4], "times": [1, 2, 3, 4], "values": [1, 1, "NaN", "NaN"]}}
    assert (found["total_steps"], found["epochs"], found["spec"]) == (10, job.epochs, {"global_batch_size": 16})


def test_lines_that_share_a_colour_have_dashes_of_their_own(client_of: Browser, member: User) -> None:
    ids = ",".join(str(make_job(owner=member).pk) for _ in range(20))
    told = client_of(member).get(reverse("compare_curves"), {"jobs": ids}).json()["jobs"]
    assert len({(job["colour"], tuple(job["dash"])) for job in told}) == 20
    page = html_of(client_of(member).get(reverse("compare"), {"jobs": ids}))
    assert page.count('stroke-dasharray="8 4"') == 8
    assert page.count('stroke-dasharray="2 3"') == 4
    assert "Add job" not in page


def test_the_table_is_renewed_while_jobs_run(client_of: Browser, member: User) -> None:
    job, other = make_job(owner=member, metrics={"loss": 0.5}), make_job(owner=member, metrics={"loss": 0.25})
    asked = {"jobs": f"{job.pk},{other.pk}"}
    assert ">0.5000<" in html_of(client_of(member).get(reverse("compare"), asked))
    job.metrics = {"loss": 0.125}
    job.save()
    renewed = html_of(client_of(member).get(reverse("compare_state"), asked))
    assert renewed.startswith('<div class="ty-card ty-scroll" id="side-by-side"')
    assert '0.1250<span class="small">best</span>' in renewed
    assert 'id="count-jobs"' in renewed


def test_a_job_is_taken_out_by_a_link_and_the_side_bar_leads_to_the_page(client_of: Browser, member: User) -> None:
    first, other = make_job(owner=member), make_job(owner=member)
    page = html_of(client_of(member).get(reverse("compare"), {"jobs": f"{first.pk},{other.pk}"}))
    assert f'href="{reverse("compare")}?jobs={other.pk}" aria-label="Take {first.name} out"' in page
    assert f'<a href="{reverse("compare")}" title="Compare"' in html_of(client_of(member).get(reverse("overview")))


@pytest.mark.django_db
def test_a_stranger_compares_nothing(client: Client) -> None:
    for name in ("compare", "compare_curves", "compare_state", "points"):
        assert client.get(reverse(name), {"jobs": "1"}).status_code in (302, 401, 403)


def test_programs_are_read_only_where_they_differ(
    client_of: Browser, member: User, django_assert_max_num_queries: Callable[[int], object]
) -> None:
    """And all that is asked of twenty jobs is asked at once."""
    cluster = make_cluster()
    jobs = [make_job(owner=member, cluster=cluster) for _ in range(20)]
    client, asked = client_of(member), {"jobs": ",".join(str(job.pk) for job in jobs)}
    client.get(reverse("compare"), asked)
    with CaptureQueriesContext(connection) as queries, django_assert_max_num_queries(8):
        client.get(reverse("compare"), asked)
    assert not [query for query in queries if '"content"' in query["sql"]]
    with django_assert_max_num_queries(9):
        client.get(reverse("compare_curves"), asked)
