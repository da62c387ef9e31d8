"""The log of all attempts in one snapshot, and of one attempt by its own address."""

import pytest
from channels.db import database_sync_to_async

from orchestrator.models import Job, User
from orchestrator.services.intake import log_text
from tests.data.fakes import log
from tests.factories import make_job, make_replica
from tests.sockets.conftest import Opener
from worker_agent.protocol.states import JobStatus

pytestmark = pytest.mark.django_db(transaction=True)


def begun_anew() -> Job:
    job = make_job(status=JobStatus.RUNNING, attempt=2)
    for attempt in (1, 2):
        log_text.store({make_replica(job, attempt=attempt): [log(f"attempt {attempt}\n", at=float(attempt))]})
    return job


async def test_a_page_gets_the_log_of_all_attempts_or_of_the_one_it_asks_for(viewer: User, open_page: Opener) -> None:
    job = await database_sync_to_async(begun_anew)()
    whole = await (await open_page(f"/ws/jobs/{job.pk}/", viewer)).frame()
    assert [(line["attempt"], line["text"]) for line in whole["log"]] == [(1, "attempt 1"), (2, "attempt 2")]
    assert list(whole["log_ends"].values()) == [10, 10]
    first = await (await open_page(f"/ws/jobs/{job.pk}/attempts/1/", viewer)).frame()
    assert [line["text"] for line in first["log"]] == ["attempt 1"]
    assert first["log_ends"] == whole["log_ends"]
