"""The seams: what really goes to the broker, tasks as door handles, and the sweep's loop."""

import base64
from datetime import UTC, datetime

import pytest
from celery import current_app
from kombu.exceptions import OperationalError

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


def test_every_enqueued_name_has_a_task(monkeypatch):
    called = []
    monkeypatch.setattr(dispatch, "dispatch_job", lambda **arguments: called.append(arguments["job_id"]))
    monkeypatch.setattr(dispatch, "dispatch_waiting", lambda **arguments: called.append("waiting"))
    by_name = {task.name: task for task in (tasks.dispatch_job, tasks.dispatch_waiting)}
    by_name[enqueue.DISPATCH_JOB](job_id=7)
    by_name[enqueue.DISPATCH_WAITING]()
    assert called == [7, "waiting"]
    assert all(name in current_app.tasks for name in by_name)


def test_one_turn_of_the_sweep_beats_and_sweeps(monkeypatch):
    swept = []
    monkeypatch.setattr(reconcile, "sweep", lambda *, now: swept.append(now))
    monkeypatch.setattr(sweep, "close_old_connections", lambda: None)
    sweep.Command().step()
    assert ServiceBeat.objects.get(name="sweep").beat_at == swept[0]
