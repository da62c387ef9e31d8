"""Checkpoints on the job page: what is kept, which is best, and the way to go on from one."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.models import Checkpoint, Job, User
from tests.factories import make_job
from tests.pages.html import html_of
from worker_agent.protocol.checkpoint import MARKER
from worker_agent.protocol.states import Cause, JobStatus

Browser = Callable[[User], Client]


@pytest.fixture
def job(member: User, settings: object, tmp_path: Path) -> Job:
    """One that ended; two checkpoints in the store, one on its way."""
    settings.CHECKPOINT_ROOT = tmp_path  # type: ignore[attr-defined]
    job = make_job(owner=member, status=JobStatus.STOPPED)
    for step, loss, usable in ((10, 0.25, True), (20, 0.5, True), (30, 0.75, False)):
        row = Checkpoint.objects.create(
            job=job,
            attempt=1,
            name=f"step-{step:010d}-a1",
            step=step,
            epoch=step // 10,
            metrics={"loss": 1.5, "val_loss": loss},
            size_bytes=2048,
            sha256="ab" * 32,
            usable=usable,
        )
        folder = tmp_path / str(job.pk) / row.name
        folder.mkdir(parents=True)
        (folder / MARKER).write_bytes(b"{}")
    return job


def text_of(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200
    return html_of(answer)


def test_they_are_listed_with_the_best_and_a_way_to_go_on(client_of: Browser, member: User, job: Job) -> None:
    best = job.checkpoints.get(step=10)
    for address in (reverse("job", args=[job.pk]), reverse("job_state", args=[job.pk])):
        page = text_of(client_of(member), address)
        assert page.count(">Resume from here<") == 2
        assert f"?clone={job.pk}&amp;resume_from={best.pk}" in page
        assert "on its way" in page
        row = next(row for row in page.split("<tr>") if f"resume_from={best.pk}" in row)
        assert 'title="best"' in row
        assert page.count('title="best"') == 1
        assert "0.2500" in row


def test_the_form_opens_with_the_checkpoint_filled_in(client_of: Browser, member: User, job: Job) -> None:
    row = job.checkpoints.get(step=20)
    page = text_of(client_of(member), reverse("job_new") + f"?clone={job.pk}&resume_from={row.pk}")
    field = page[page.index('name="resume_from"') - 200 : page.index('name="resume_from"') + 200]
    assert f'value="{row.pk}"' in field


def test_viewers_look_and_download(client_of: Browser, viewer: User, job: Job) -> None:
    row = job.checkpoints.get(step=20)
    address = reverse("job_checkpoint", args=[job.pk, row.pk])
    page = text_of(client_of(viewer), reverse("job", args=[job.pk]))
    assert address in page
    assert "Resume from here" not in page
    answer = client_of(viewer).get(address)
    assert answer.headers["Content-Type"] == "application/x-tar"
    assert f'filename="j-{job.pk}-{row.name}.tar"' in answer.headers["Content-Disposition"]
    on_its_way = job.checkpoints.get(step=30)
    assert client_of(viewer).get(reverse("job_checkpoint", args=[job.pk, on_its_way.pk])).status_code == 302
    assert client_of(viewer).get(reverse("job_checkpoint", args=[make_job().pk, row.pk])).status_code == 404


def test_a_job_that_asks_for_none_shows_nothing_of_them(client_of: Browser, member: User) -> None:
    page = text_of(client_of(member), reverse("job", args=[make_job(spec={"checkpoints_kept": 0}).pk]))
    assert "Checkpoints</h2>" not in page
    page = text_of(client_of(member), reverse("job", args=[make_job(spec={"checkpoint_steps": 50}).pk]))
    assert "every 50 steps" in page


def test_the_stop_dialog_says_what_is_true_by_now(client_of: Browser, member: User, job: Job) -> None:
    job.status, job.attempt = JobStatus.SUBMITTED, 0
    held = list(job.checkpoints.all())
    job.checkpoints.all().delete()

    def told() -> str:
        job.save()
        parts = [text_of(client_of(member), reverse(name, args=[job.pk])) for name in ("job", "job_state")]
        words = {part.partition('id="stop-d" class="soft">')[2].partition("</p>")[0] for part in parts}
        assert len(words) == 1
        return words.pop()

    assert told() == (
        "It has not started and will not. It has no checkpoint yet. It can only be run again from the beginning."
    )
    job.status, job.attempt = JobStatus.RUNNING, 1
    assert told().startswith("Every process ends within about ")
    job.attempts.update(resumed_step=120)
    assert told().endswith("It has no checkpoint of its own yet. What it trained since step 120 is lost.")
    Checkpoint.objects.bulk_create(row for row in held if row.step == 30)
    assert "Its checkpoint at step 30 is still on its way" in told()
    Checkpoint.objects.bulk_create(row for row in held if row.step != 30)
    assert told().endswith("A new job can continue from its checkpoint at step 20.")
    job.status = JobStatus.SUBMITTED
    assert told().startswith("It will not be launched again.")
    job.status = JobStatus.STOPPING
    assert told() == ""


def test_a_failed_job_offers_its_newest_checkpoint_first(
    client_of: Browser, member: User, viewer: User, job: Job
) -> None:
    failed = {"status": JobStatus.FAILED.value, "cause": Cause.EXCEPTION.value, "reason": "It raised.", "step": 27}
    Job.objects.filter(pk=job.pk).update(**failed)
    address = reverse("job", args=[job.pk])
    page = text_of(client_of(member), address)
    assert "The curves up to step 27 and the logs of every process, and a checkpoint at step 20." in page
    head = page[page.index('id="job-head"') :].partition("</header>")[0]
    newest = job.checkpoints.get(step=20)
    link = f'<a class="btn btn-ink" href="{reverse("job_new")}?clone={job.pk}&amp;resume_from={newest.pk}">'
    assert head.index(link) < head.index("Resume from step 20") < head.index("Run again")
    assert head.count("btn-ink") == 1
    assert f"resume_from={newest.pk}" not in text_of(client_of(viewer), address)
    job.checkpoints.update(usable=False)
    page = text_of(client_of(member), address)
    assert "a checkpoint at step" not in page
    assert re.search(r'<a class="btn btn-ink" href="[^"]*clone=\d+"><svg [^>]*><use [^>]*></svg>Edit and start', page)
