"""A page's end of a feed: connect as a person, read frames."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn

import pytest
import pytest_asyncio
from asgiref.testing import ApplicationCommunicator
from channels.db import database_sync_to_async
from channels.layers import channel_layers
from django.conf import settings
from django.test import Client

from dashboard.config.asgi import application
from orchestrator.models import User

HOST = "testserver"
TIMEOUT_S = 5.0
Opener = Callable[..., Awaitable["Page"]]


class Page(ApplicationCommunicator):
    """One page, as the web server sees it."""

    async def connect(self) -> bool:
        """Open the connection; False when it was refused (the browser gets HTTP 403)."""
        await self.send_input({"type": "websocket.connect"})
        return bool((await self.receive_output(TIMEOUT_S))["type"] == "websocket.accept")

    async def frame(self) -> dict[str, Any]:
        """The next frame; a close instead fails."""
        message = await self.receive_output(TIMEOUT_S)
        assert message["type"] == "websocket.send", message
        return dict(json.loads(message["text"], parse_constant=_not_json))

    async def close_code(self) -> int:
        """The code with which the server closes; frames before it are passed over."""
        while True:
            message = await self.receive_output(TIMEOUT_S)
            if message["type"] == "websocket.close":
                return int(message["code"])

    async def leave(self) -> None:
        """The browser goes away; whatever the server did not handle is raised here."""
        await self.send_input({"type": "websocket.disconnect", "code": 1001})
        await self.wait(TIMEOUT_S)


def page_at(path: str, *, session: str = "", origin: str = f"http://{HOST}", host: str = HOST) -> Page:
    """A page that is about to connect; `origin` "" sends no Origin header."""
    headers = [(b"host", host.encode())]
    if origin:
        headers.append((b"origin", origin.encode()))
    if session:
        headers.append((b"cookie", f"{settings.SESSION_COOKIE_NAME}={session}".encode()))
    path, _, query = path.partition("?")
    scope = {"type": "websocket", "path": path, "query_string": query.encode(), "headers": headers, "subprotocols": []}
    return Page(application, scope)


@database_sync_to_async
def session_of(person: User) -> str:
    """A fresh session of that person."""
    client = Client()
    client.force_login(person, backend="django.contrib.auth.backends.ModelBackend")
    return str(client.session.session_key)


@pytest_asyncio.fixture
async def open_page() -> AsyncIterator[Opener]:
    """`await open_page(path, person)`: an accepted connection, ended with the test."""
    pages: list[Page] = []

    async def opened(path: str, person: User | None = None, **options: str) -> Page:
        page = page_at(path, session=await session_of(person) if person else "", **options)
        pages.append(page)
        assert await page.connect()
        return page

    yield opened
    for page in pages:
        if not page.future.done():
            await page.leave()


@pytest.fixture(autouse=True)
def _fresh_layer() -> None:
    """No messages of the test before."""
    channel_layers.backends.clear()


def _not_json(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")
