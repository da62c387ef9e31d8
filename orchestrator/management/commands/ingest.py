"""`manage.py ingest`: the one process that stores what nodes report. The loop, its signals and its lock; the work of a
turn is `orchestrator/ingest.py`.
"""

import logging
import signal
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TextIO

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, InterfaceError, connection
from redis import Redis
from redis.exceptions import RedisError

from orchestrator.embedded.folder import locked
from orchestrator.end_signals import EndSignals
from orchestrator.ingest import ENTRIES_PER_STEP, PASSING, Ingest

logger = logging.getLogger(__name__)

WAIT_MS = 500
# Batches begin at least this far apart, so that a page gets a few messages with many points rather than the reverse.
BATCH_EVERY_S = 0.025
# So long heartbeats gather while nothing else comes from their node: a thousand agents fill many small batches.
HEARTBEATS_GATHER_S = 0.5
BACK_OFF_S = (0.1, 0.25, 0.5, 1.0, 2.0)
REDIS_TIMEOUT_S = 5.0
LOCK_KEY = 0x7472_6169_6E79  # "trainy": the advisory lock of ingest in PostgreSQL


class Command(BaseCommand):
    """Store reports until SIGTERM or SIGINT."""

    help = "Store what nodes report (metrics, logs, states, load). Exactly one of these runs."

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the loop."""
        end = EndSignals(signal.SIGTERM, signal.SIGINT)
        redis = Redis.from_url(
            settings.REDIS_URL, socket_timeout=REDIS_TIMEOUT_S, socket_connect_timeout=REDIS_TIMEOUT_S
        )
        turns = _Turns(Ingest(redis))
        turns.lock()
        logger.info("ingest listens to %s", settings.REDIS_URL.rpartition("@")[2])
        while not end.is_set():
            end.wait(turns.take())
        turns.end()
        logger.info("ingest ends: %s", dict(turns.ingest.counts))


class _Turns:
    """Steps of ingest, the lock that makes it the only one, and what to do when Redis or the database is away."""

    def __init__(self, ingest: Ingest) -> None:
        self.ingest = ingest
        self._file: TextIO | None = None
        self._locked = False
        self._failures = 0

    def lock(self) -> None:
        """Become the one ingest of this installation; raises `CommandError` when there is one."""
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_try_advisory_lock(%s)", [LOCK_KEY])
                taken = bool(cursor.fetchone()[0])
        else:
            self._file = self._file or locked(settings.DATA_DIR / "ingest.lock")
            taken = self._file is not None
        if not taken:
            raise CommandError("Another ingest is running on this database. There can be only one: stop it first.")
        self._locked = True

    def take(self) -> float:
        """One step; returns how long to wait before the next."""
        begun = time.monotonic()
        try:
            if not self._locked:
                self.lock()
            found = self.ingest.step(datetime.now(UTC), wait_ms=WAIT_MS, gather_s=HEARTBEATS_GATHER_S)
        except (RedisError, DatabaseError, *PASSING) as error:
            return self._back_off(error)
        if self._failures:
            logger.info("ingest goes on")
        self._failures = 0
        if not 0 < found < ENTRIES_PER_STEP:
            return 0.0
        return max(BATCH_EVERY_S - (time.monotonic() - begun), 0.0)

    def end(self) -> None:
        """Write what is kept, and let go of the lock and the connection."""
        with suppress(DatabaseError, InterfaceError):
            self.ingest.end(datetime.now(UTC))
        if self._file is not None:
            self._file.close()
        elif self._locked:
            # Said outright: the server notices a closed connection a little later, and the next ingest may be faster.
            with suppress(DatabaseError), connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [LOCK_KEY])
        connection.close()

    def _back_off(self, error: Exception) -> float:
        """The same step again later: nothing was removed from the stream."""
        pause_s = BACK_OFF_S[min(self._failures, len(BACK_OFF_S) - 1)]
        if self._failures in (0, len(BACK_OFF_S)):
            logger.warning("ingest waits and tries again: %s: %s", type(error).__name__, error)
        self._failures += 1
        if isinstance(error, DatabaseError | InterfaceError) and not connection.in_atomic_block:
            connection.close()
            self._locked = self._file is not None
        return pause_s
