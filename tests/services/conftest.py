"""Every test of the services runs with a gateway that keeps what is sent, and with nothing enqueued for real."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from orchestrator import agents, enqueue

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def gateway(db: None) -> Iterator[agents.FakeGateway]:
    """What the nodes would have got."""
    fake = agents.FakeGateway()
    with agents.using(fake):
        yield fake


@pytest.fixture(autouse=True)
def enqueued(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, int]]]:
    """What Celery would have got: (task name, arguments)."""
    sent: list[tuple[str, dict[str, int]]] = []
    monkeypatch.setattr(enqueue, "_send", lambda name, **arguments: sent.append((name, arguments)))
    return sent


@pytest.fixture
def now() -> datetime:
    """A moment that only moves when a test moves it."""
    return NOW
