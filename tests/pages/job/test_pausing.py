"""Pause and Resume on the job page: who is offered what, and what the dialog says is lost before somebody does it."""

from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.models import Checkpoint, Job, User
from tests.factories import make_job
from tests.pages.html import html_of
from worker_agent.protocol.states import JobStatus

Browser = Callable[[User], Client]


def text_of(client: Client, job: Job, name: str = "job") -> str:
    return html_of(client.get(reverse(name, args=[job.pk])))


def running(owner: User, **spec: object) -> Job:
    return make_job(owner=owner, status=JobStatus.RUNNING, attempt=1, step=120, spec=spec)


@pytest.mark.parametrize(
    ("status", "pause", "resume"),
    [(JobStatus.RUNNING, True, False), (JobStatus.PAUSED, False, True), (JobStatus.PAUSING, False, False)],
)
def test_what_is_offered_when_and_to_whom(
    client_of: Browser, member: User, viewer: User, status: JobStatus, pause: bool, resume: bool
) -> None:
    job = make_job(owner=member, status=status, attempt=1)
    for person, may in ((member, True), (viewer, False)):
        page = text_of(client_of(person), job)
        assert ('id="pause-button"' in page) == (pause and may)
        assert (reverse("job_resume", args=[job.pk]) in page) == (resume and may)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({}, "It saves a checkpoint, its processes end, and its devices become free"),
        ({"kind": "script"}, "have 120 s if they handle it. Trainyard saves nothing of a script"),
        ({"checkpoints_kept": 0}, "and you lose all 120 steps: resumed, it starts again."),
    ],
)
def test_the_dialog_says_before_what_is_lost(
    client_of: Browser, member: User, spec: dict[str, object], words: str
) -> None:
    job = running(member, **spec)
    for name in ("job", "job_state"):
        dialog = text_of(client_of(member), job, name).partition('id="pause-d"')[2].partition("</p>")[0]
        assert words in dialog


def test_a_paused_job_says_with_what_it_goes_on(client_of: Browser, member: User) -> None:
    job = make_job(owner=member, status=JobStatus.PAUSED, attempt=1, reason="Paused by mel.")
    page = text_of(client_of(member), job)
    assert (
        "<strong>Paused by mel.</strong><p>Its devices are free. When you resume it, it starts from the beginning.</p>"
        in page
    )
    row = Checkpoint.objects.create(
        job=job, attempt=1, name="step-0000000057-a1", step=57, epoch=1, size_bytes=1, sha256="0" * 64
    )
    assert "step 57. That checkpoint is still on its way" in text_of(client_of(member), job)
    Checkpoint.objects.filter(pk=row.pk).update(usable=True)
    assert "it continues from step 57." in text_of(client_of(member), job)


def test_pressing_them(client_of: Browser, member: User, teammate: User) -> None:
    job = running(member)
    assert client_of(teammate).post(reverse("job_pause", args=[job.pk])).status_code == 403
    assert client_of(member).post(reverse("job_pause", args=[job.pk])).status_code == 302
    job.refresh_from_db()
    assert (job.status, job.reason) == (JobStatus.PAUSING, f"Paused by {member.username}.")
    page = client_of(member).post(reverse("job_resume", args=[job.pk]), follow=True).content.decode()
    assert "The job is still being paused" in page
    Job.objects.filter(pk=job.pk).update(status=JobStatus.PAUSED)
    client_of(member).post(reverse("job_resume", args=[job.pk]))
    job.refresh_from_db()
    assert job.status == JobStatus.SUBMITTED
