"""What every feed does: admit, join the groups, send a snapshot, forward events, and end when the right to see ends.

A feed (`consumers.py`) names its groups, reads its snapshot and says who may see it. The groups are joined before the
snapshot is read, so nothing falls between the two. Whoever cannot keep up, or may have missed something, is closed: its
page connects again and begins with a fresh snapshot.

A feed is an ASGI application of its own rather than a consumer of Channels, which would spend a task and a thread on
every event of every page. Events come straight from the layer and wait in a bounded queue for their page alone.
"""

import asyncio
import contextlib
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from channels.db import database_sync_to_async
from channels.layers import get_channel_layer
from django.conf import settings
from django.db import DatabaseError
from redis.exceptions import RedisError

from dashboard.sockets import rights
from orchestrator.live import jsonable
from orchestrator.queries.errors import NotFound
from orchestrator.queries.rows import User
from worker_agent.protocol.codec import plain

# Close codes after which the page connects again; those of `rights.py` are final.
MISSED_SOMETHING = 4409
TOO_SLOW = 4429
TRY_LATER = 1013
# No code: the page has gone by itself.
GONE = None

CLOSE_WITHIN_S = 1.0
OUTGOING_MESSAGES = 500
OUTGOING_CHARS = 16_000_000

LAYER_ERRORS = (RedisError, OSError, TimeoutError)

logger = logging.getLogger(__name__)

T = TypeVar("T")
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Feed:
    """One open page. Subclasses give `groups`, `check` and `snapshot`; the latter two run in a thread.

    It is a `rights.Guarded`, and a `Listener` of the layer: `take`, `missed` and `end` never block.
    """

    def __init__(self, scope: Message, send: Send) -> None:
        self.path: str = scope["path"]
        self.session: str = scope["cookies"].get(settings.SESSION_COOKIE_NAME, "")
        # What the page's address names.
        self.asked: dict[str, Any] = scope["url_route"]["kwargs"]
        self.query: bytes = scope["query_string"]
        self._send = send
        self._waiting: deque[str] = deque()
        self._waiting_chars = 0
        self._news = asyncio.Event()
        self._ended: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

    @classmethod
    def as_asgi(cls) -> Callable[..., Any]:
        """The application that serves each page that opens."""

        async def application(scope: Message, receive: Receive, send: Send) -> None:
            await cls(scope, send).serve(receive)

        return application

    def groups(self) -> Sequence[str]:
        """The groups whose events this page gets."""
        raise NotImplementedError

    def check(self, user: User) -> None:
        """Raises `NotFound` where `user` may not see this."""

    def snapshot(self, user: User) -> dict[str, object]:
        """Everything the page shows, as of one moment."""
        raise NotImplementedError

    async def serve(self, receive: Receive) -> None:
        """Accept, because closing codes reach a page only then; live; close with the code that says why."""
        await receive()
        await self._send({"type": "websocket.accept"})
        code = await self.live(receive)
        if code is not GONE:
            # A peer that takes nothing takes no closing frame either: then the connection is simply dropped.
            with contextlib.suppress(OSError, TimeoutError):
                await asyncio.wait_for(self._send({"type": "websocket.close", "code": code}), CLOSE_WITHIN_S)

    def take(self, text: str) -> None:
        """Events of the group, as `orchestrator/live.py` framed them: they leave as soon as the page takes them."""
        if self._ended.done():
            return
        self._waiting_chars += len(text)
        if len(self._waiting) >= OUTGOING_MESSAGES or (self._waiting and self._waiting_chars > OUTGOING_CHARS):
            self.end(TOO_SLOW)
        else:
            self._waiting.append(text)
            self._news.set()

    def missed(self) -> None:
        """The connection to Redis was renewed: something may have been missed."""
        self.end(MISSED_SOMETHING)

    def end(self, code: int) -> None:
        """Close the page, and drop what waits for it."""
        if not self._ended.done():
            self._ended.set_result(code)
            self._waiting.clear()

    async def live(self, receive: Receive) -> int | None:
        """Admit, join, send the snapshot and forward; the code to close with."""
        layer: Any = get_channel_layer()
        try:
            await _in_thread(partial(rights.admitted, self))
            for group in self.groups():
                await layer.join(group, self)
            snapshot = await _in_thread(self._snapshot_text)
            return await self._forward(snapshot, receive)
        except rights.SignedOut:
            return rights.SIGN_IN_AGAIN
        except NotFound:
            return rights.NO_SUCH_THING
        except (DatabaseError, *LAYER_ERRORS):
            logger.warning("a page could not be served live", exc_info=True)
            return TRY_LATER
        finally:
            for group in self.groups():
                with contextlib.suppress(*LAYER_ERRORS):
                    await layer.leave(group, self)

    async def _forward(self, snapshot: str, receive: Receive) -> int | None:
        """The snapshot, then what came behind it, until the page goes or is ended."""
        self._waiting_chars += len(snapshot)
        self._waiting.appendleft(snapshot)
        self._news.set()
        work = [asyncio.create_task(self._pump()), asyncio.create_task(_until_gone(receive))]
        ends: list[asyncio.Future[Any]] = [*work, self._ended]
        try:
            with rights.watched(self):
                done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)
        code: int | None = done.pop().result()
        return code

    async def _pump(self) -> None:
        with contextlib.suppress(OSError):  # the page has gone
            while True:
                await self._news.wait()
                self._news.clear()
                while self._waiting:
                    text = self._waiting.popleft()
                    self._waiting_chars -= len(text)
                    await self._send({"type": "websocket.send", "text": text})

    def _snapshot_text(self) -> str:
        snapshot = plain({"type": "snapshot", **self.snapshot(rights.admitted(self))})
        return json.dumps(jsonable(snapshot), allow_nan=False)


async def _until_gone(receive: Receive) -> None:
    """Pages have nothing to say here; what they send is dropped."""
    while (await receive())["type"] != "websocket.disconnect":
        pass


async def _in_thread(read: Callable[[], T]) -> T:
    result: T = await database_sync_to_async(read, thread_sensitive=False)()
    return result
