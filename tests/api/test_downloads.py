"""Files leave in pieces under ASGI, whatever serves them: a warning about whole reads would be an error here."""

import pytest
from channels.db import database_sync_to_async
from django.test import AsyncClient

from orchestrator.models import Artifact, Job, LogChunk, User
from orchestrator.services import accounts
from tests.factories import make_job, make_replica

pytestmark = pytest.mark.django_db(transaction=True)
CONTENT = bytes(range(256)) * 4000


async def test_artifacts_and_logs_are_streamed(member: User, settings, tmp_path) -> None:
    settings.ARTIFACT_ROOT = tmp_path

    def prepare() -> tuple[Job, Artifact, str]:
        job = make_job(owner=member, attempt=1)
        LogChunk.objects.create(replica=make_replica(job, log_size=6), start=0, end=6, at=1.0, text="één\n")
        row = Artifact.objects.create(job=job, attempt=1, name="a b.keras", size_bytes=len(CONTENT), sha256="0" * 64)
        (tmp_path / str(row.pk)).mkdir()
        (tmp_path / str(row.pk) / row.name).write_bytes(CONTENT)
        return job, row, accounts.create_api_token(user=member, name="tests")

    job, row, token = await database_sync_to_async(prepare)()
    browser = AsyncClient()
    await database_sync_to_async(browser.force_login)(member, backend="django.contrib.auth.backends.ModelBackend")
    by_token = {"Authorization": f"Bearer {token}"}
    for client, path, headers in [
        (AsyncClient(), f"/api/v1/jobs/{job.pk}/artifacts/{row.pk}", by_token),
        (browser, f"/jobs/{job.pk}/artifacts/{row.pk}/", {}),
    ]:
        answer = await client.get(path, headers=headers)
        assert answer.is_async
        pieces = [piece async for piece in answer.streaming_content]
        assert len(pieces) > 1
        assert b"".join(pieces) == CONTENT
        assert answer.headers["Content-Disposition"] == 'attachment; filename="a b.keras"'
        assert answer.headers["Content-Security-Policy"] == "default-src 'none'; sandbox"
        assert answer.headers["Content-Length"] == str(len(CONTENT))
    log = await browser.get(f"/jobs/{job.pk}/log/?replica=worker:0")
    assert b"".join([piece async for piece in log.streaming_content]).decode() == "één\n"
    assert log.headers["Content-Disposition"].startswith("attachment; ")


async def test_static_files_are_streamed() -> None:
    answer = await AsyncClient().get("/static/ninja/swagger-ui.css")
    assert answer.is_async
    size = sum([len(piece) async for piece in answer.streaming_content])
    assert answer.headers["Content-Length"] == str(size)
    same = await AsyncClient().get("/static/ninja/swagger-ui.css", headers={"If-None-Match": answer.headers["ETag"]})
    assert same.status_code == 304
    part = await AsyncClient().get("/static/ninja/swagger-ui.css", headers={"Range": "bytes=0-9"})
    assert (part.status_code, len(b"".join([piece async for piece in part.streaming_content]))) == (206, 10)
