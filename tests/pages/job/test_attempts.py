"""All attempts of a job are one log and one curve: restarts marked, one attempt by the address."""

from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator import series
from orchestrator.models import Job, User
from orchestrator.services.intake import log_text
from tests.data.fakes import log
from tests.factories import make_job, make_replica
from tests.pages.html import html_of
from worker_agent.protocol.states import JobStatus

pytestmark = pytest.mark.django_db
Browser = Callable[[User], Client]
MARK = '<div class="ty-log-sep is-restart">Attempt 2</div>'


@pytest.fixture
def job(member: User) -> Job:
    """Two attempts of two workers; the second worker is new in the second one."""
    series.appends.forget()
    job = make_job(owner=member, status=JobStatus.RUNNING, attempt=2)
    for attempt, index in ((1, 0), (2, 0), (2, 1)):
        replica = make_replica(job, attempt=attempt, index=index)
        log_text.store({replica: [log(f"worker {index} of {attempt}\n", at=float(attempt))]})
        curve = series.curve_of([1, 2], [1.0, 2.0], [0.5, 0.4])
        series.append([series.Addition(series.Owner(replica_id=replica.pk), "loss", curve)])
    return job


def test_the_log_holds_all_attempts_and_marks_where_one_begins(client_of: Browser, viewer: User, job: Job) -> None:
    page = html_of(client_of(viewer).get(reverse("job", args=[job.pk])))
    first, mark, second = (page.index(text) for text in ("worker 0 of 1", MARK, "worker 0 of 2"))
    assert first < mark < second
    assert page.count("is-restart") == 1
    assert page.count('<option value="2">Attempt 2</option>') == 2


def test_the_address_names_one_attempt(client_of: Browser, viewer: User, job: Job) -> None:
    address = reverse("job", args=[job.pk])
    page = html_of(client_of(viewer).get(address, {"attempt": "1"}))
    assert "worker 0 of 1" in page
    assert "worker 0 of 2" not in page
    assert page.count('<option value="1" selected>') == 2
    for nonsense in ("3", "0", "-1", "x", "²", "9" * 30):
        assert "worker 0 of 2" in html_of(client_of(viewer).get(address, {"attempt": nonsense}))


def test_there_is_nothing_to_choose_in_a_first_attempt(client_of: Browser, viewer: User) -> None:
    page = html_of(client_of(viewer).get(reverse("job", args=[make_job(status=JobStatus.RUNNING).pk])))
    assert page.count('autocomplete="off" hidden>') == 2


def test_a_log_is_downloaded_whole_or_of_one_attempt(client_of: Browser, viewer: User, job: Job) -> None:
    def got(**asked: str) -> str:
        return client_of(viewer).get(reverse("job_log", args=[job.pk]), asked).getvalue().decode()

    assert got(replica="worker:0") == "--- Attempt 1 ---\nworker 0 of 1\n--- Attempt 2 ---\nworker 0 of 2\n"
    assert got(replica="worker:1") == "--- Attempt 2 ---\nworker 1 of 2\n"
    assert got(replica="worker:0", attempt="1") == "worker 0 of 1\n"
    assert got(replica="worker:0.0") == "worker 0 of 2\n"
    assert client_of(viewer).get(reverse("job_log", args=[job.pk]), {"replica": "ps:0"}).status_code == 404


def test_rest_gives_the_series_of_one_attempt(client_of: Browser, viewer: User, job: Job) -> None:
    address = f"/api/v1/jobs/{job.pk}/series"
    assert [(each["replica"], each["attempt"]) for each in client_of(viewer).get(address).json()["loss"]] == [
        ("worker:0", 1),
        ("worker:0", 2),
        ("worker:1", 2),
    ]
    assert [each["attempt"] for each in client_of(viewer).get(address, {"attempt": 1}).json()["loss"]] == [1]
    refused = client_of(viewer).get(address, {"attempt": 3})
    assert (refused.status_code, refused.json()["detail"]) == (404, "This job has no attempt 3.")
