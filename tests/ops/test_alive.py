"""`manage.py alive`: the health checks of docker-compose.yml, asked as a container asks them."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml
from celery import current_app
from django.core.management import CommandError, call_command
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from orchestrator import enqueue, tasks
from orchestrator.embedded import ports, redis_server
from orchestrator.management.commands import alive
from orchestrator.models import ServiceBeat
from tests.environment import ROOT, child_environment
from tests.waiting import wait_until
from worker_agent.machine.files import locked

SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
CELERY = SERVICES["celery"]


class Lists(redis.Redis):
    """Redis' lists, kept here."""

    kept: dict[str, list[str]] = {}

    def rpush(self, name: str, *values: str) -> int:  # type: ignore[override]
        self.kept.setdefault(name, []).extend(values)
        return len(self.kept[name])

    def expire(self, name: str, time: int) -> bool:  # type: ignore[override]
        return name in self.kept and time > 0

    def blpop(self, keys: list[str], timeout: int = 0) -> list[str] | None:  # type: ignore[override]
        return self.kept.pop(keys[0], None)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The messages; nobody takes them."""
    messages: list[dict[str, Any]] = []
    monkeypatch.setattr(current_app, "send_task", lambda name, **options: messages.append({"name": name} | options))
    for module in (alive, tasks):
        monkeypatch.setattr(module, "Redis", Lists)
    return messages


def test_a_worker_is_asked_in_its_own_queue_and_its_silence_is_an_error(sent: list[dict[str, Any]]) -> None:
    with pytest.raises(CommandError, match=r"control@.+ did not answer within 10 s"):
        call_command("alive", "celery")
    (message,) = sent
    assert message["name"] == enqueue.ANSWER
    assert message["queue"].name == f"control@{os.uname().nodename}.dq2"
    assert message["expires"] > alive.ANSWER_WITHIN_S


@pytest.mark.django_db
def test_a_worker_that_runs_the_task_is_alive(
    sent: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(current_app, "send_task", lambda name, kwargs, **_: current_app.tasks[name](**kwargs))
    call_command("alive", "celery")
    assert capsys.readouterr().out == "alive\n"
    assert not Lists.kept


@pytest.mark.parametrize("error", [OperationalError("refused"), RedisError("refused")])
def test_a_redis_that_is_down_is_said(
    sent: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(current_app, "send_task", refuse)
    with pytest.raises(CommandError, match="Redis does not answer: refused"):
        call_command("alive", "celery")


@pytest.mark.django_db
def test_a_loop_lives_by_its_beat() -> None:
    now = datetime.now(UTC)
    with pytest.raises(CommandError, match="sweep has never run"):
        call_command("alive", "sweep")
    beat = ServiceBeat.objects.create(name="sweep", alive_since=now, beat_at=now)
    call_command("alive", "sweep")
    ServiceBeat.objects.filter(pk=beat.pk).update(beat_at=now - timedelta(seconds=31))
    with pytest.raises(CommandError, match="sweep has been silent since"):
        call_command("alive", "sweep")


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """That of a container of the control plane; a Redis listens."""
    port = ports.any_free()
    configuration = redis_server.write_configuration(tmp_path / "redis", port=port, password="p")
    server = subprocess.Popen([redis_server.find_server(), configuration], stdout=subprocess.DEVNULL)
    url = redis_server.url(port=port, password="p")
    with redis.Redis.from_url(url) as client:
        wait_until(client.ping, passing=(RedisError,))
    yield child_environment() | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TRAINYARD_SECRET_KEY": "only-for-tests",
        "TRAINYARD_DATA_DIR": str(tmp_path),
        "TRAINYARD_REDIS_URL": url,
    }
    server.kill()
    server.wait()


@pytest.mark.stack
def test_the_health_check_of_compose_tells_whether_the_worker_of_compose_works(environment: dict[str, str]) -> None:
    def check() -> int:
        _cmd, *line = CELERY["healthcheck"]["test"]
        return subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, check=False).returncode

    worker = subprocess.Popen(CELERY["command"], cwd=ROOT, env=environment)
    try:
        wait_until(lambda: check() == 0)
        worker.send_signal(signal.SIGSTOP)
        assert check() == 1
    finally:
        worker.send_signal(signal.SIGCONT)
        worker.terminate()
        worker.wait()


def test_the_health_check_of_an_agent_looks_at_its_lock_and_leaves_it_alone(tmp_path: Path) -> None:
    _shell, line = SERVICES["agent-1"]["healthcheck"]["test"]
    line = line.replace("$$", "$").replace("/var/lib/trainyard-agent", str(tmp_path))

    def check() -> int:
        return subprocess.run(["sh", "-c", line], capture_output=True, check=False).returncode

    assert check() != 0
    assert not list(tmp_path.iterdir())
    with locked(tmp_path / "agent.lock"):
        assert check() == 0
    assert check() != 0
