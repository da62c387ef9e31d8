"""The seams: what really goes to the broker, tasks as door handles, and the sweep's loop."""

import base64
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from celery import current_app
from kombu.exceptions import OperationalError
from redis import RedisError

from orchestrator import agents, enqueue, tasks
from orchestrator.management.commands import sweep
from orchestrator.models import ServiceBeat
from orchestrator.services.jobs import dispatch
from orchestrator.services.sweep import reconcile
from worker_agent.protocol.envelope import open_envelope


@pytest.fixture
def gateway(db):
    """The real one."""


@pytest.fixture
def broker(monkeypatch):
    """Calls of `send_task`."""
    calls = []
    monkeypatch.setattr(current_app, "send_task", lambda name, **options: calls.append((name, options)))
    return calls


def test_a_command_goes_sealed_to_its_nodes_queue(broker):
    now = datetime.now(UTC)
    parcel = agents.Parcel(node_id="abcdefabcdef", key=b"k" * 32, body=b"body")
    agents.send(parcel, now=now)
    ((name, options),) = broker
    assert (name, options["queue"]) == ("trainyard.agent.command", "node.abcdefabcdef")
    envelope = base64.b64decode(options["kwargs"]["envelope"])
    body, _nonce = open_envelope(envelope, node_id="abcdefabcdef", key=b"k" * 32, now=now.timestamp() + 299)
    assert body == b"body"


def test_a_broker_that_is_down_is_said(monkeypatch):
    def refuse(name, **options):
        raise OperationalError("connection refused")

    monkeypatch.setattr(current_app, "send_task", refuse)
    with pytest.raises(agents.NotSent):
        agents.send(agents.Parcel("a", b"k", b"b"), now=datetime.now(UTC))


def test_only_json_travels_and_results_are_not_kept():
    assert current_app.conf.accept_content == ["json"]
    assert current_app.conf.task_serializer == "json"
    assert current_app.conf.task_ignore_result is True
    assert current_app.conf.worker_prefetch_multiplier == 1


class FakeRedis:
    """One key."""

    def __init__(self) -> None:
        self.held: set[str] = set()
        self.is_down = False

    def set(self, key, value, *, nx, ex):
        if self.is_down:
            raise RedisError("refused")
        assert nx
        assert ex > 0
        was_there = key in self.held
        self.held.add(key)
        return None if was_there else True

    def delete(self, key):
        if self.is_down:
            raise RedisError("refused")
        self.held.discard(key)


@pytest.fixture
def enqueued():
    """The real one."""


@pytest.fixture
def redis(monkeypatch):
    fake = FakeRedis()
    monkeypatch.setattr(enqueue, "_redis", lambda url: fake)
    return fake


def test_many_who_ask_get_one_pass_and_who_asks_during_it_gets_the_next(
    broker, redis, monkeypatch, django_capture_on_commit_callbacks
):
    def passes() -> int:
        with django_capture_on_commit_callbacks(execute=True):
            for _ in range(5):
                enqueue.ask_to_dispatch()
        return len(broker)

    assert passes() == 1
    assert broker == [(enqueue.DISPATCH, {"kwargs": {}, "queue": "control", "expires": 60.0, "ignore_result": True})]
    asked_during: list[int] = []
    monkeypatch.setattr(dispatch, "dispatch_waiting", lambda **arguments: asked_during.append(passes()))
    current_app.tasks[enqueue.DISPATCH]()
    assert asked_during == [2]
    redis.held.clear()
    assert passes() == 3, "a task that was lost keeps nobody from asking for long"


def test_no_pass_is_asked_for_while_redis_is_down_and_the_task_works_all_the_same(
    broker, redis, monkeypatch, django_capture_on_commit_callbacks
):
    called = []
    monkeypatch.setattr(dispatch, "dispatch_waiting", lambda **arguments: called.append("waiting"))
    redis.is_down = True
    with django_capture_on_commit_callbacks(execute=True):
        enqueue.ask_to_dispatch()
    tasks.dispatch_waiting()
    assert (broker, called) == ([], ["waiting"])


def test_one_pass_runs_at_a_time_and_the_next_serves_all_who_ask_until_it_begins(redis, monkeypatch):
    running, going_on, begun = threading.Event(), threading.Event(), []

    def run(**arguments: object) -> None:
        begun.append(arguments)
        running.set()
        assert going_on.wait(10)

    monkeypatch.setattr(dispatch, "dispatch_waiting", run)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(tasks.dispatch_waiting)
        assert running.wait(10)
        redis.held.add(enqueue.ASKED_KEY)
        second = pool.submit(tasks.dispatch_waiting)
        with pytest.raises(TimeoutError):
            second.result(timeout=0.1)
        assert (len(begun), set(redis.held)) == (1, {enqueue.ASKED_KEY})
        going_on.set()
        assert first.result(10) is second.result(10) is None
    assert (len(begun), set(redis.held)) == (2, set())


def test_one_turn_of_the_sweep_beats_and_sweeps(monkeypatch):
    swept = []
    monkeypatch.setattr(reconcile, "sweep", lambda *, now: swept.append(now))
    monkeypatch.setattr(sweep, "close_old_connections", lambda: None)
    sweep.Command().step()
    assert ServiceBeat.objects.get(name="sweep").beat_at == swept[0]
