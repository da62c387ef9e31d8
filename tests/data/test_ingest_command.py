"""`manage.py ingest`: only one at a time; Redis or the database away is waited out; heartbeats gather;
SIGTERM ends it."""

import os
import signal
import threading
import time

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection
from redis.exceptions import ConnectionError as RedisAway

from orchestrator import ingest as ingest_module
from orchestrator.ingest import ENTRIES_PER_STEP, Ingest
from orchestrator.management.commands import ingest as command
from orchestrator.models import Node
from tests.data.conftest import NOW
from tests.data.fakes import NOW_S, FakeAgent, FakeRedis, heartbeat, points, put
from tests.data.test_exactly_once import loss_of
from tests.factories import make_node
from worker_agent.protocol.reports import REPORTS_KEY

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
    def away(now: object, **named: float) -> int:
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
        monkeypatch.setattr(turns.ingest, "step", lambda now, handled=handled, **named: handled)
        assert least <= turns.take() <= command.BATCH_EVERY_S
    turns.end()


def test_heartbeats_gather_while_their_node_says_nothing_else(
    agent: FakeAgent, redis: FakeRedis, ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = 100.0
    monkeypatch.setattr(ingest_module.time, "monotonic", lambda: clock)
    quiet = make_node(last_seen_at=None)

    def seen() -> list[bool]:
        return [Node.objects.get(pk=node.pk).last_seen_at == NOW for node in (quiet, agent.node)]

    put(redis, quiet, heartbeat(quiet, at=NOW_S))
    put(redis, agent.node, heartbeat(agent.node, at=NOW_S))
    assert ingest.step(NOW, gather_s=0.5) == 2
    assert seen() == [False, False]
    agent.say(points([1.0]))
    agent.send()
    assert ingest.step(NOW, gather_s=0.5) == 3
    assert seen() == [False, True]
    assert loss_of(agent.replica) == [1.0]
    assert len(redis.streams[REPORTS_KEY]) == 1
    clock += 0.6
    assert ingest.step(NOW, gather_s=0.5) == 1
    assert seen() == [True, True]
    assert redis.streams[REPORTS_KEY] == []
    assert ingest.counts["handled"] == 3


def test_heartbeats_that_were_left_are_handled_by_the_next_ingest(redis: FakeRedis, ingest: Ingest) -> None:
    node = make_node(last_seen_at=None)
    put(redis, node, heartbeat(node, at=NOW_S))
    ingest.step(NOW, gather_s=60.0)
    Ingest(redis).step(NOW)  # type: ignore[arg-type]
    node.refresh_from_db()
    assert node.last_seen_at == NOW


def test_it_runs_until_sigterm(monkeypatch: pytest.MonkeyPatch, redis: FakeRedis) -> None:
    node = make_node(last_seen_at=None)
    put(redis, node, heartbeat(node), expires_at=time.time() + 60)
    xread = redis.xread

    def read_and_wait(streams: dict[str, object], count: int, block: int | None = None) -> list[object]:
        found = xread(streams, count)
        if not found and not redis.streams[REPORTS_KEY]:
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
