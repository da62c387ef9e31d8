"""Whether a page may be open: asked when it opens (`admitted`), and again every few seconds while it is (`watched`).

All open pages of a process are looked at together, in one thread with one connection to the database: each session
once, and each address of a session once, however many pages show it.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Protocol
from weakref import WeakKeyDictionary

from channels.db import database_sync_to_async
from django.db import DatabaseError

from orchestrator.queries.errors import NotFound
from orchestrator.queries.rows import User
from orchestrator.services.accounts import user_for_session

CHECK_EVERY_S = 5.0
# Close codes that the page knows as final.
SIGN_IN_AGAIN = 4401
NO_SUCH_THING = 4404

logger = logging.getLogger(__name__)


class SignedOut(Exception):
    """The session stands for nobody (any more)."""


class Guarded(Protocol):
    """A page, open or about to be: who asks (`session`, a key) and for what (`path`)."""

    session: str
    path: str

    def check(self, user: User) -> None:
        """Raises `NotFound` where `user` may not see this."""

    def end(self, code: int) -> None:
        """Close the page."""


def admitted(page: Guarded) -> User:
    """The person to whom the page may be shown; raises `SignedOut` or `NotFound`."""
    return _person(page, user_for_session(page.session))


@contextmanager
def watched(page: Guarded) -> Iterator[None]:
    """Within this, `page` is ended as soon as its right to be open is found to have ended."""
    watch = _watches.setdefault(asyncio.get_running_loop(), _Watch())
    watch.add(page)
    try:
        yield
    finally:
        watch.discard(page)


class _Watch:
    """The open pages of one event loop, and the task that looks at them while there are any."""

    def __init__(self) -> None:
        self._pages: set[Guarded] = set()
        self._looking: asyncio.Task[None] | None = None

    def add(self, page: Guarded) -> None:
        self._pages.add(page)
        self._looking = self._looking or asyncio.create_task(self._look())

    def discard(self, page: Guarded) -> None:
        self._pages.discard(page)
        if self._looking and not self._pages:
            self._looking.cancel()
            self._looking = None

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            look = database_sync_to_async(partial(_refused, tuple(self._pages)), thread_sensitive=False)
            try:
                for page, code in await look():
                    page.end(code)
            except DatabaseError:
                # Without the database no events come either: ask again when it is back.
                logger.warning("the rights of open pages could not be checked", exc_info=True)


_watches: "WeakKeyDictionary[asyncio.AbstractEventLoop, _Watch]" = WeakKeyDictionary()


def _refused(pages: Iterable[Guarded]) -> list[tuple[Guarded, int]]:
    """Those that may be open no longer, each with the code that says why."""
    user_of = cache(user_for_session)
    codes: dict[tuple[str, str], int] = {}
    refused = []
    for page in pages:
        asked = page.session, page.path
        if asked not in codes:
            codes[asked] = _code(page, user_of(page.session))
        if codes[asked]:
            refused.append((page, codes[asked]))
    return refused


def _code(page: Guarded, user: User | None) -> int:
    try:
        _person(page, user)
    except SignedOut:
        return SIGN_IN_AGAIN
    except NotFound:
        return NO_SUCH_THING
    return 0


def _person(page: Guarded, user: User | None) -> User:
    if user is None:
        raise SignedOut
    page.check(user)
    return user
