"""What the tests of the data path share: fresh memories of series and load, a Redis, and what pages would be told."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from orchestrator import live
from orchestrator.ingest import Ingest
from orchestrator.models import Replica
from tests.data.fakes import NOW_S, FakeAgent, FakeRedis
from tests.factories import make_replica

NOW = datetime.fromtimestamp(NOW_S, UTC)


@pytest.fixture
def redis() -> FakeRedis:
    return FakeRedis()


@pytest.fixture
def ingest(redis: FakeRedis) -> Ingest:
    return Ingest(redis)  # type: ignore[arg-type]


@pytest.fixture
def replica(db: None) -> Replica:
    """A running replica of a running job."""
    return make_replica()


@pytest.fixture
def agent(redis: FakeRedis, replica: Replica) -> FakeAgent:
    """Speaks for `replica`'s training process."""
    return FakeAgent(redis, replica)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[live.LiveEvent]]:
    """Everything that left for pages, by group."""
    kept: dict[str, list[live.LiveEvent]] = {}

    def send(messages: dict[str, list[live.LiveEvent]]) -> None:
        for group, events in messages.items():
            kept.setdefault(group, []).extend(live.made(events))

    monkeypatch.setattr(live, "_send", send)
    return kept


@pytest.fixture
def step(ingest: Ingest, django_capture_on_commit_callbacks: Callable[..., object]) -> Callable[[], int]:
    """One step of ingest at `NOW`, with what it does on commit."""

    def run() -> int:
        with live.gathered(), django_capture_on_commit_callbacks(execute=True):
            return ingest.step(NOW)

    return run
