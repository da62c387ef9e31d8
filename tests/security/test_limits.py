"""Body limits at the server's door: decided before a byte is stored, for strangers as for everybody."""

import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from channels.db import database_sync_to_async

from dashboard.config.limits import ORDINARY_BODY_BYTES, BodyLimit, limit_of
from tests.factories import make_node
from worker_agent.protocol.envelope import sign_request

UPLOAD = "/agent/v1/replicas/1/artifacts/model.keras"


class Inner:
    """Reads the whole body, then answers 204."""

    def __init__(self) -> None:
        self.taken = 0
        self.called = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.called = True
        while True:
            message = await receive()
            self.taken += len(message["body"])
            if not message["more_body"]:
                break
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})


async def call(
    path: str,
    *,
    pieces: list[int],
    declared: str | None = None,
    method: str = "POST",
    headers: dict[str, str] | None = None,
) -> tuple[int, dict[str, Any], Inner]:
    """(status, JSON body, inner application) of a request whose body comes in `pieces`."""
    sent, inner = await exchange(path, pieces=pieces, declared=declared, method=method, headers=headers)
    body = b"".join(message.get("body", b"") for message in sent)
    return sent[0]["status"], json.loads(body or b"{}"), inner


async def exchange(
    path: str,
    *,
    pieces: list[int],
    declared: str | None = None,
    method: str = "POST",
    headers: dict[str, str] | None = None,
) -> tuple[list[dict[str, Any]], Inner]:
    """(messages sent, inner application) of such a request."""
    inner, sent = Inner(), []
    given = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
    if declared is not None:
        given.append((b"content-length", declared.encode()))

    async def bodies() -> AsyncIterator[dict[str, Any]]:
        for number, size in enumerate(pieces, start=1):
            yield {"type": "http.request", "body": b"x" * size, "more_body": number < len(pieces)}

    stream = bodies()

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "headers": given}
    await BodyLimit(inner)(scope, lambda: anext(stream), send)
    return sent, inner


def test_limits_by_path(settings) -> None:
    assert limit_of("/sign-in/") == ORDINARY_BODY_BYTES
    assert limit_of("/agent/v1/join") == ORDINARY_BODY_BYTES
    for path in ("/agent/v1/replicas/1/artifacts/", "/agent/v1/replicas/x/artifacts/a", f"/api/v1{UPLOAD}"):
        assert limit_of(path) == ORDINARY_BODY_BYTES, path
    for path in ("/api/v1/jobs", "/api/v1/jobs/preview", "/jobs/new/", "/jobs/new/preview/"):
        assert limit_of(path) == settings.DATA_UPLOAD_MAX_MEMORY_SIZE, path
    for path in (UPLOAD, "/agent/v1/replicas/1/artifacts/logs/train/events"):
        assert limit_of(path) == settings.MAX_ARTIFACT_BYTES, path


@pytest.mark.parametrize("declared", [str(ORDINARY_BODY_BYTES + 1), "9" * 30, "-1", "many", "1e9"])
async def test_what_declares_too_much_is_refused_unread(declared: str) -> None:
    status, body, inner = await call("/sign-in/", pieces=[10], declared=declared)
    assert (status, body["errors"], inner.called) == (413, [], False)


async def test_what_declares_nothing_is_counted() -> None:
    status, _, inner = await call("/sign-in/", pieces=[ORDINARY_BODY_BYTES // 2] * 5)
    assert status == 413
    assert inner.taken <= ORDINARY_BODY_BYTES


@pytest.mark.parametrize("declared", ["40000000", None])
async def test_a_browser_is_refused_by_a_page(declared: str | None) -> None:
    browser = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    sent, inner = await exchange("/jobs/new/", pieces=[10_000_000] * 4, declared=declared, headers=browser)
    page = sent[1]["body"].decode()
    assert (sent[0]["status"], dict(sent[0]["headers"])[b"content-type"]) == (413, b"text/html; charset=utf-8")
    assert "This form is too large" in page
    assert "Choose a smaller file" in page
    assert inner.taken <= limit_of("/jobs/new/")


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/jobs/new/preview/"])
async def test_a_script_is_refused_by_json(path: str) -> None:
    status, body, _ = await call(path, pieces=[10], declared="40000000", headers={"Accept": "application/json"})
    assert (status, body["errors"]) == (413, [])


async def test_what_fits_passes() -> None:
    status, _, inner = await call("/sign-in/", pieces=[ORDINARY_BODY_BYTES], declared=str(ORDINARY_BODY_BYTES))
    assert (status, inner.taken) == (204, ORDINARY_BODY_BYTES)


@pytest.mark.django_db(transaction=True)
async def test_a_file_is_taken_from_nodes_only() -> None:
    node = await database_sync_to_async(make_node)()
    for authorization in ("", "Bearer ty_x", f"Trainyard node={node.pk}, at={int(time.time())}, mac={'0' * 64}"):
        status, _, inner = await call(UPLOAD, pieces=[10], method="PUT", headers={"Authorization": authorization})
        assert (status, inner.called) == (401, False)
    at = int(time.time())
    mac = sign_request(method="PUT", path=UPLOAD, at=at, key=bytes(node.key))
    headers = {"Authorization": f"Trainyard node={node.pk}, at={at}, mac={mac}"}
    size = ORDINARY_BODY_BYTES + 1
    status, _, inner = await call(UPLOAD, pieces=[size], declared=str(size), method="PUT", headers=headers)
    assert (status, inner.taken) == (204, size)
