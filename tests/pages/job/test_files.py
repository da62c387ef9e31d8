"""The Files card: each file with its process, a folder as one row with a zip file, and what is not kept and why."""

from collections.abc import Callable
from pathlib import Path

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.models import Artifact, Job, Replica, User
from tests.factories import make_job, make_replica
from tests.pages.html import html_of
from worker_agent.protocol.states import JobStatus, Kind

pytestmark = pytest.mark.django_db
Browser = Callable[[User], Client]


@pytest.fixture
def job(member: User) -> Job:
    return make_job(owner=member, status=JobStatus.RUNNING, spec={"kind": Kind.SCRIPT, "files_limit_mb": 50})


def keep(replica: Replica, name: str, size_bytes: int = 1200) -> Artifact:
    return Artifact.objects.create(
        job=replica.job, attempt=replica.attempt, replica=replica, name=name, size_bytes=size_bytes, sha256="0" * 64
    )


def test_files_stand_there_with_folders_as_one_row(client_of: Browser, viewer: User, job: Job) -> None:
    replica = make_replica(job)
    for name in ("export/saved_model.pb", "export/variables/variables.index", "loss.png"):
        keep(replica, name)
    answer = client_of(viewer).get(reverse("job", args=[job.pk]))
    page = answer.content.decode()
    assert f'href="/jobs/{job.pk}/files/1.zip?folder=export"' in page
    assert f'href="/jobs/{job.pk}/files/1.zip"' in page
    assert ">variables/<wbr>variables.index</a>" in page
    assert [row.folder for row in answer.context["files"].rows] == ["export", ""]
    assert answer.context["files"].rows[0].size_bytes == 2400
    assert '<th scope="col">Process</th>' not in page


def test_two_processes_are_told_apart(client_of: Browser, viewer: User, job: Job) -> None:
    for index in (1, 0):
        replica = make_replica(job, index=index)
        for name in ("model.keras", "loss.png"):
            keep(replica, name)
    answer = client_of(viewer).get(reverse("job", args=[job.pk]))
    shown = [(row.newest.name, str(row.newest.replica)) for row in answer.context["files"].rows]
    names = ("loss.png", "model.keras")
    assert shown == [(name, f"worker:{index}") for name in names for index in (0, 1)]
    assert html_of(answer).count('data-k="Process">worker 1<') == 2


def test_what_is_not_kept_is_said_with_reason_and_size(client_of: Browser, viewer: User, job: Job) -> None:
    left = {"left": [{"name": "<b>.h5", "size_bytes": 3_200_000_000, "why": "limit"}], "more": 41}
    make_replica(job, files_left=left)
    page = html_of(client_of(viewer).get(reverse("job", args=[job.pk])))
    assert "42 not kept" in page
    assert "The job keeps files of 50 MB in all." in page
    assert "&lt;b&gt;.h5" in page
    assert "GB: all files of the job together would exceed its limit" in page
    assert "41 more" in page
    assert "Edit and start</a>" not in page


def test_what_fits_no_pattern_leads_to_the_field(client_of: Browser, member: User, viewer: User) -> None:
    job = make_job(owner=member, status=JobStatus.SUCCEEDED, attempt=1, spec={"kind": "script"})
    make_replica(job, files_left={"left": [{"name": "train.out", "size_bytes": 7, "why": "unasked"}], "more": 0})
    address, link = reverse("job", args=[job.pk]), f"?clone={job.pk}#f-files"
    page = html_of(client_of(member).get(address))
    assert "1 not kept" in page
    assert "its name fits no pattern of the field Files kept" in page
    assert link in page
    assert link not in html_of(client_of(viewer).get(address))


def test_thousands_of_files_are_a_hundred_rows(client_of: Browser, viewer: User, job: Job) -> None:
    replica = make_replica(job)
    for number in range(150):
        keep(replica, f"{number}.png")
        keep(replica, f"many/{number}.png")
    answer = client_of(viewer).get(reverse("job", args=[job.pk]))
    assert len(answer.context["files"].rows) == 100
    assert "more files are in the zip file" in answer.content.decode()


def test_a_folder_is_downloaded_as_zip(
    client_of: Browser, viewer: User, job: Job, settings: object, tmp_path: Path
) -> None:
    settings.ARTIFACT_ROOT = tmp_path  # type: ignore[attr-defined]
    row = keep(make_replica(job), "plots/loss.png")
    (tmp_path / str(row.pk)).mkdir()
    (tmp_path / str(row.pk) / "loss.png").write_bytes(b"picture")
    browser = client_of(viewer)
    answer = browser.get(reverse("job_files", args=[job.pk, 1]), {"folder": "plots"})
    assert answer.headers["Content-Disposition"] == f'attachment; filename="j-{job.pk}-1-plots.zip"'
    assert b"picture" in answer.getvalue()
    assert browser.get(reverse("job_files", args=[job.pk, 7])).status_code == 404
    assert Client().get(reverse("job_files", args=[job.pk, 1])).status_code == 302
