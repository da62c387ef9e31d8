"""What every feed does: admit, join the group, send a snapshot, forward events, and end when the right to see ends.

A feed (`consumers.py`) names its group, reads its snapshot and says who may see it. The group is joined before the
snapshot is read, so nothing falls between the two. Whoever cannot keep up, or may have missed something, is closed: its
page connects again and begins with a fresh snapshot.
"""

import asyncio
import contextlib
import json
import logging
import random
from collections.abc import Callable
from typing import Any, TypeVar

from channels.db import database_sync_to_async
from channels.exceptions import StopConsumer
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.db import DatabaseError
from redis.exceptions import RedisError

from orchestrator.live import jsonable
from orchestrator.queries.errors import NotFound
from orchestrator.queries.rows import User
from orchestrator.services.accounts import user_for_session
from worker_agent.protocol.codec import plain

# Close codes that the page knows: 44xx are final, the others lead to a new connection.
SIGN_IN_AGAIN = 4401
NO_SUCH_THING = 4404
MISSED_SOMETHING = 4409
TOO_SLOW = 4429
TRY_LATER = 1013

CHECK_RIGHTS_EVERY_S = 10.0
CLOSE_WITHIN_S = 1.0
OUTGOING_MESSAGES = 500
OUTGOING_CHARS = 16_000_000

LAYER_ERRORS = (RedisError, OSError, TimeoutError)

logger = logging.getLogger(__name__)

T = TypeVar("T")


class SignedOut(Exception):
    """The session stands for nobody (any more)."""


class Feed(AsyncWebsocketConsumer):
    """One open page. Subclasses give `group`, `check` and `snapshot`; the latter two run in a thread."""

    @property
    def asked(self) -> dict[str, Any]:
        """What the page's address names."""
        return dict(self.scope["url_route"]["kwargs"])

    def group(self) -> str:
        """The group whose events this page gets."""
        raise NotImplementedError

    def check(self, user: User) -> None:
        """Raises `NotFound` where `user` may not see this."""

    def snapshot(self, user: User) -> dict[str, object]:
        """Everything the page shows, as of one moment."""
        raise NotImplementedError

    async def connect(self) -> None:
        """Admit, join, send the snapshot. Closing codes reach a page only after accepting."""
        await self.accept()
        self._outgoing: asyncio.Queue[str] = asyncio.Queue(OUTGOING_MESSAGES)
        self._waiting_chars = 0
        self._work: list[asyncio.Task[None]] = []
        try:
            await _in_thread(self._admitted_user)
            await self.channel_layer.group_add(self.group(), self.channel_name)
            snapshot = await _in_thread(self._snapshot_text)
        except SignedOut:
            await self.close(code=SIGN_IN_AGAIN)
        except NotFound:
            await self.close(code=NO_SUCH_THING)
        except (DatabaseError, *LAYER_ERRORS):
            logger.warning("a page could not be served live", exc_info=True)
            await self.close(code=TRY_LATER)
        else:
            self._work = [asyncio.create_task(self._pump()), asyncio.create_task(self._keep_checking())]
            await self._put(snapshot)

    async def disconnect(self, code: int) -> None:
        """Leave the group; end what runs for this page."""
        for task in self._work:
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        with contextlib.suppress(*LAYER_ERRORS):
            await self.channel_layer.group_discard(self.group(), self.channel_name)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Pages have nothing to say here; what they send is dropped."""

    async def live_events(self, message: dict[str, Any]) -> None:
        """Events of the group, as `orchestrator/live.py` framed them."""
        await self._put(message["text"])

    async def live_gap(self, message: dict[str, Any]) -> None:
        """The connection to Redis was renewed (`layer.py`): something may have been missed."""
        await self._end(MISSED_SOMETHING)

    async def _put(self, text: str) -> None:
        if not self._work:
            return
        self._waiting_chars += len(text)
        if self._outgoing.full() or (self._waiting_chars > OUTGOING_CHARS and not self._outgoing.empty()):
            await self._end(TOO_SLOW)
        self._outgoing.put_nowait(text)

    async def _pump(self) -> None:
        while True:
            text = await self._outgoing.get()
            self._waiting_chars -= len(text)
            await self.send(text_data=text)

    async def _keep_checking(self) -> None:
        while True:
            # Not all pages at once: those of a server that came back were opened in the same moment.
            await asyncio.sleep(CHECK_RIGHTS_EVERY_S * random.uniform(0.5, 1))
            try:
                await _in_thread(self._admitted_user)
            except SignedOut:
                await self.close(code=SIGN_IN_AGAIN)
            except NotFound:
                await self.close(code=NO_SUCH_THING)
            except DatabaseError:
                # Without the database no events come either: ask again when it is back.
                logger.warning("the rights of an open page could not be checked", exc_info=True)

    async def _end(self, code: int) -> None:
        for task in self._work:
            task.cancel()
        # A peer that takes nothing takes no closing frame either: then the connection is simply dropped.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.close(code=code), CLOSE_WITHIN_S)
        await self.disconnect(code)
        raise StopConsumer

    def _admitted_user(self) -> User:
        user = user_for_session(self.scope["cookies"].get(settings.SESSION_COOKIE_NAME, ""))
        if user is None:
            raise SignedOut
        self.check(user)
        return user

    def _snapshot_text(self) -> str:
        snapshot = plain({"type": "snapshot", **self.snapshot(self._admitted_user())})
        return json.dumps(jsonable(snapshot), allow_nan=False)


async def _in_thread(read: Callable[[], T]) -> T:
    result: T = await database_sync_to_async(read, thread_sensitive=False)()
    return result
