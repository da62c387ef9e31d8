"""How large a request may be, decided before its body is read. The outermost layer of HTTP in `asgi.py`.

Django spools a body to disk before any view runs, so without this anybody could fill the disk without signing in.
An upload of an artifact or a checkpoint may be large, and so has to be signed by a node before its first byte is taken.
A program gets its refusal as JSON, a person whose browser sent a form gets a page.
"""

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import close_old_connections
from django.template.loader import render_to_string

from dashboard.api.signature import NotSigned, node_of_request

ORDINARY_BODY_BYTES = 1_000_000
UPLOAD = re.compile(r"^/agent/v1/replicas/[0-9]+/(artifacts/.+|checkpoints/[^/]+(/[^/]+)?)$")
# Where a program travels in the body.
WITH_CODE = re.compile(r"^/(api/v1/(jobs(/preview)?|preflight)|jobs/new/((preview|check)/)?)$")
FOR_PROGRAMS = ("/api/", "/agent/")

Scope = dict[str, Any]
Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class TooLarge(Exception):
    """The body went over its limit on the way."""


class BodyLimit:
    """ASGI: answers 413 for a body over the limit of its path, and 401 for an upload that no node has signed."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on with a counted `receive`."""
        limit = limit_of(scope["path"])
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        declared = headers.get("content-length", "0")
        if not declared.isdigit() or int(declared) > limit:
            await _refuse_size(send, limit, scope, headers)
            return
        if UPLOAD.match(scope["path"]):
            try:
                await sync_to_async(_check_signature, thread_sensitive=False)(scope, headers)
            except NotSigned as error:
                await _refuse(send, 401, str(error))
                return
        taken, answered = 0, False

        async def counted() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > limit:
                raise TooLarge
            return message

        async def noted(message: Message) -> None:
            nonlocal answered
            answered = True
            await send(message)

        try:
            await self.app(scope, counted, noted)
        except TooLarge:
            if not answered:
                await _refuse_size(send, limit, scope, headers)


def limit_of(path: str) -> int:
    """The most bytes that a body sent to `path` may have."""
    if UPLOAD.match(path):
        return int(settings.MAX_ARTIFACT_BYTES)
    if WITH_CODE.match(path):
        return int(settings.DATA_UPLOAD_MAX_MEMORY_SIZE)
    return ORDINARY_BODY_BYTES


def _check_signature(scope: Scope, headers: dict[str, str]) -> None:
    close_old_connections()
    try:
        node_of_request(method=scope["method"], path=scope["path"], authorization=headers.get("authorization", ""))
    finally:
        close_old_connections()


async def _refuse_size(send: Send, limit: int, scope: Scope, headers: dict[str, str]) -> None:
    if not scope["path"].startswith(FOR_PROGRAMS) and "text/html" in headers.get("accept", ""):
        body = render_to_string("413.html", {"limit": limit}).encode()
        await _answer(send, 413, "text/html; charset=utf-8", body)
    else:
        await _refuse(send, 413, f"The request is larger than the {limit} bytes allowed here.")


async def _refuse(send: Send, status: int, detail: str) -> None:
    await _answer(send, status, "application/json", json.dumps({"detail": detail, "errors": []}).encode())


async def _answer(send: Send, status: int, content_type: str, body: bytes) -> None:
    headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, (b"connection", b"close")]})
    await send({"type": "http.response.body", "body": body})
