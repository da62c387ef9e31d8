"""From a selection in the list to the question, and to the deed; tags and notes on the pages."""

from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.models import Job, JobMetric, User
from tests.factories import make_job
from tests.pages.html import html_of
from worker_agent.protocol.states import JobStatus

Browser = Callable[[User], Client]
NASTY = "<script>alert('x')</script>"


def test_the_question_says_what_will_be_done_and_what_cannot(client_of: Browser, member: User) -> None:
    run, ended = make_job(owner=member), make_job(owner=member, status=JobStatus.FAILED)
    asked = {"action": "stop", "jobs": [run.pk, ended.pk], "back": "status=active"}
    page = html_of(client_of(member).get(reverse("job_bulk"), asked))
    assert "Stop 1 job?" in page
    assert "1 cannot be stopped" in page
    assert "The job has already ended: it failed." in page
    assert Job.objects.get(pk=run.pk).status == JobStatus.SUBMITTED


def test_the_deed_leads_back_to_the_same_list_and_says_what_was_done(client_of: Browser, member: User) -> None:
    run, ended = make_job(owner=member), make_job(owner=member, status=JobStatus.FAILED)
    asked = {"action": "stop", "jobs": f"{run.pk},{ended.pk}", "back": "status=stopped&sort=name"}
    answer = client_of(member).post(reverse("job_bulk"), asked, follow=True)
    assert answer.redirect_chain == [("/jobs/?status=stopped&sort=name", 302)]
    assert "1 job stopped." in answer.content.decode()
    assert f"j-{ended.pk}: The job has already ended: it failed." in answer.content.decode()
    assert Job.objects.get(pk=run.pk).status == JobStatus.STOPPED


def test_a_wrong_tag_is_said_at_its_field(client_of: Browser, member: User) -> None:
    asked = {"action": "tag", "jobs": make_job(owner=member).pk, "tag": "<b>"}
    answer = client_of(member).post(reverse("job_bulk"), asked)
    assert answer.status_code == 422
    assert "A tag is one word" in answer.content.decode()


def test_too_many_no_action_and_no_jobs_lead_back_with_a_reason(client_of: Browser, member: User) -> None:
    client = client_of(member)
    ids = ",".join(map(str, range(1, 10_001)))
    answer = client.post(reverse("job_bulk"), {"action": "stop", "jobs": ids}, follow=True)
    assert "At most 200 jobs can be chosen at once" in answer.content.decode()
    for asked in (
        {"action": "stop"},
        {"jobs": "1"},
        {"action": "burn", "jobs": "1"},
        {"action": "stop", "jobs": "x,²"},
    ):
        assert "Nothing was done" in client.get(reverse("job_bulk"), asked, follow=True).content.decode()


def test_a_forged_request_is_refused(member: User, client_of: Browser) -> None:
    job, client = make_job(owner=member), client_of(member)
    client.handler.enforce_csrf_checks = True
    assert client.post(reverse("job_bulk"), {"action": "stop", "jobs": job.pk}).status_code == 403
    assert Job.objects.get().status == JobStatus.SUBMITTED


@pytest.mark.parametrize(("who", "may"), [("viewer", False), ("member", True)])
def test_only_who_may_run_jobs_gets_the_buttons(
    who: str, may: bool, request: pytest.FixtureRequest, client_of: Browser, member: User
) -> None:
    make_job(owner=member)
    page = client_of(request.getfixturevalue(who)).get(reverse("jobs")).content.decode()
    assert ('value="delete"' in page) == may


def test_the_list_sorts_by_the_metric_that_it_shows(client_of: Browser, member: User) -> None:
    for name, value in {"low": 0.1, "high": 0.9}.items():
        job = make_job(owner=member, name=name, metrics={"acc": value}, sketch=[[1, 2.0], [2, 1.0]])
        JobMetric.objects.create(job=job, name="acc", value=value)
    answer = client_of(member).get(reverse("jobs"), {"metric": "acc", "sort": "-metric"})
    assert [row.job.name for row in answer.context["rows"]] == ["high", "low"]
    page = html_of(answer)
    assert 'aria-sort="descending"' in page
    assert "0.9000" in page
    assert page.count("ty-spark is-cell") == 2


def test_tags_and_notes_are_written_on_the_job_page_and_stay_text(client_of: Browser, member: User) -> None:
    job, client = make_job(owner=member), client_of(member)
    page = client.post(reverse("job_words", args=[job.pk]), {"tags": "one, two", "notes": NASTY}, follow=True)
    assert NASTY not in page.content.decode()
    assert "&lt;script&gt;alert" in page.content.decode()
    listed = client.get(reverse("jobs"), {"tag": "two"})
    assert [row.job for row in listed.context["rows"]] == [job]
    assert 'href="/jobs/?tag=two"' in listed.content.decode()
    refused = client.post(reverse("job_words", args=[job.pk]), {"tags": "<b>", "notes": ""}, follow=True)
    assert "A tag is one word" in refused.content.decode()


def test_a_teammate_writes_no_words(client_of: Browser, member: User, teammate: User) -> None:
    answer = client_of(teammate).post(reverse("job_words", args=[make_job(owner=member).pk]), {"tags": "x"})
    assert answer.status_code == 403
