"""Restarts on the job page, and their field in the new-job form."""

from collections.abc import Callable
from datetime import timedelta

from django.test import Client
from django.urls import reverse

from dashboard.templatetags.trainyard import replica_name
from orchestrator.models import Attempt, Job, User
from tests.api.test_restarts import AT, replaced, restarted
from tests.factories import make_job
from tests.pages.html import html_of
from worker_agent.protocol.states import JobStatus

Browser = Callable[[User], Client]


def test_the_page_lists_each_restart_with_its_cost(client_of: Browser, member: User, viewer: User) -> None:
    job = restarted(member)
    Job.objects.filter(pk=job.pk).update(spec=job.spec | {"max_restarts": 3})
    for address in (reverse("job", args=[job.pk]), reverse("job_state", args=[job.pk])):
        page = html_of(client_of(viewer).get(address))
        section = page[page.index('id="restarts"') :].partition("</section>")[0]
        assert "worker 0 on node-1 failed: ValueError" in section
        assert "Counts as restart 1 of 3." in section
        for cell in (">57<", ">40<", ">17<", ">33 s<", ">node-1<"):
            assert cell in section
    Attempt.objects.filter(job=job, number=2).update(running_at=AT + timedelta(seconds=123.5))
    assert ">2 min 05 s<" in html_of(client_of(viewer).get(reverse("job", args=[job.pk])))
    quiet = html_of(client_of(member).get(reverse("job", args=[make_job(owner=member).pk])))
    assert '<div id="restarts"></div>' in quiet


def test_times_are_told_from_the_first_launch_on(client_of: Browser, member: User) -> None:
    job = restarted(member)
    Attempt.objects.filter(job=job, number=1).update(running_at=AT - timedelta(minutes=5))
    ended = {"started_at": AT + timedelta(seconds=31.5), "ended_at": AT + timedelta(minutes=2, seconds=40)}
    Job.objects.filter(pk=job.pk).update(status=JobStatus.SUCCEEDED.value, **ended)
    page = html_of(client_of(member).get(reverse("job", args=[job.pk])))
    head = page[page.index('id="job-head"') :].partition("</header>")[0]
    assert 'datetime="2026-03-01T11:55:00.000+00:00"' in head
    assert 'datetime="2026-03-01T12:02:40.000+00:00"' in head
    assert 'succeeded after<span class="strong">7 min</span>' in page
    row = html_of(client_of(member).get(reverse("jobs")))
    assert 'datetime="2026-03-01T11:55:00.000+00:00"' in row
    assert '<span class="sub">7 min</span>' in row


def test_a_replaced_process_stays_on_the_page(client_of: Browser, member: User) -> None:
    job = replaced(member)
    answer = client_of(member).get(reverse("job", args=[job.pk]))
    page = html_of(answer)
    section = page[page.index('id="restarts"') :].partition("</section>")[0]
    for cell in (">Worker 1<", "killed by signal 9", ">57<", ">0<", ">none<", ">away 4 s<", ">node-1<"):
        assert cell in section
    table = page[page.index('id="replicas"') :].partition("</section>")[0]
    assert "4 of 4 at work" in table
    assert (table.count('data-replica="worker:1"'), table.count("Replaced"), table.count(">201<")) == (1, 1, 1)
    assert f'href="{reverse("job_log", args=[job.pk])}?replica=worker%3A1.0"' in table
    log = client_of(member).get(reverse("job_log", args=[job.pk]) + "?replica=worker%3A1.0")
    assert b"".join(log.streaming_content) == b"old\n"
    (row,) = [row for row in answer.context["timeline"].rows if row.name == replica_name("worker:1")]
    assert [bar.kind for bar in row.bars] == ["start", "fail", "start", "run"]
    assert row.bars[2].since == row.bars[1].until


def test_a_job_that_waits_to_try_again_says_until_when(client_of: Browser, member: User) -> None:
    waits = "waits until 12:00:10 UTC before it is launched again (restart 1 of 3)"
    job = make_job(owner=member, status=JobStatus.SUBMITTED, attempt=1, waiting_for=waits, not_before=AT)
    page = html_of(client_of(member).get(reverse("job", args=[job.pk])))
    assert f"<strong>Waiting to restart.</strong><p>W{waits[1:]}</p>" in page


def test_the_form_has_the_field_and_a_clone_keeps_it(client_of: Browser, member: User) -> None:
    page = html_of(client_of(member).get(reverse("job_new")))
    assert "After a failure" in page
    job = make_job(owner=member, spec={"max_restarts": 7})
    clone = html_of(client_of(member).get(reverse("job_new") + f"?clone={job.pk}"))
    field = clone[clone.index('name="max_restarts"') - 250 : clone.index('name="max_restarts"') + 250]
    assert 'value="7"' in field
    assert '<details class="ty-fold" open><summary><span>After a failure</span>' in clone
    settings = html_of(client_of(member).get(reverse("job", args=[job.pk])))
    assert "<dt>Restarts after failures</dt><dd>7 times</dd>" in settings
