"""`manage.py ingest`: only one at a time; Redis or the database away is waited out; SIGTERM ends it."""

import os
import signal
import threading
import time

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection
from redis.exceptions import ConnectionError as RedisAway

from orchestrator.ingest import ENTRIES_PER_STEP, Ingest
from orchestrator.management.commands import ingest as command
from tests.data.fakes import FakeRedis, heartbeat, put
from tests.factories import make_node

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def turns(ingest: Ingest) -> command._Turns:
    return command._Turns(ingest)


def test_a_second_ingest_is_refused_until_the_first_has_ended(ingest: Ingest) -> None:
    first, second = command._Turns(ingest), command._Turns(ingest)
    first.lock()
    refused: list[Exception] = []

    def other_process() -> None:
        try:
            second.lock()
        except CommandError as error:
            refused.append(error)
        finally:
            connection.close()

    thread = threading.Thread(target=other_process)
    thread.start()
    thread.join()
    assert "Another ingest is running" in str(refused[0])
    first.end()
    second.lock()
    second.end()


@pytest.mark.parametrize("error", [RedisAway("refused"), OperationalError("the database is away")])
def test_what_is_away_is_waited_for_with_growing_pauses(
    turns: command._Turns, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def away(now: object, *, wait_ms: int) -> int:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(turns.ingest, "step", away)
        pauses = [turns.take() for _ in range(7)]
    assert pauses == [*command.BACK_OFF_S, command.BACK_OFF_S[-1], command.BACK_OFF_S[-1]]
    assert turns.take() == 0.0
    turns.end()


def test_small_batches_keep_their_distance_and_full_ones_do_not(
    turns: command._Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    for handled, least in [(0, 0.0), (3, 0.001), (500, 0.001), (ENTRIES_PER_STEP, 0.0)]:
        monkeypatch.setattr(turns.ingest, "step", lambda now, wait_ms, handled=handled: handled)
        assert least <= turns.take() <= command.BATCH_EVERY_S
    turns.end()


def test_it_runs_until_sigterm(monkeypatch: pytest.MonkeyPatch, redis: FakeRedis) -> None:
    node = make_node(last_seen_at=None)
    put(redis, node, heartbeat(node), expires_at=time.time() + 60)
    xread = redis.xread

    def read_and_wait(streams: dict[str, object], count: int, block: int | None = None) -> list[object]:
        found = xread(streams, count)
        if not found and redis.streams:
            os.kill(os.getpid(), signal.SIGTERM)
        return found

    monkeypatch.setattr(redis, "xread", read_and_wait)
    monkeypatch.setattr(command.Redis, "from_url", lambda *args, **named: redis)
    call_command("ingest")
    node.refresh_from_db()
    assert node.last_seen_at is not None
    turns = command._Turns(Ingest(redis))  # type: ignore[arg-type]
    turns.lock()
    turns.end()
