"""Every test of the services runs with a gateway that keeps what is sent, and with nothing enqueued for real."""

from datetime import UTC, datetime

import pytest

from orchestrator import agents, enqueue
from worker_agent.protocol.codec import decode_command
from worker_agent.protocol.commands import Command

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class FakeGateway:
    """Keeps what it was given. `broken` makes it refuse, as a broker that is down does."""

    def __init__(self) -> None:
        self.parcels: list[agents.Parcel] = []
        self.withdrawn: list[int] = []
        self.renewed: list[int] = []
        self.lately: set[str] = set()
        self.broken = False

    def send(self, parcel: agents.Parcel, *, now: datetime) -> None:
        self._check()
        self.parcels.append(parcel)

    def withdraw(self, launches: list[int]) -> None:
        self._check()
        self.withdrawn += launches

    def renew(self, launches: list[int]) -> None:
        self._check()
        self.renewed += launches

    @property
    def commands(self) -> list[Command]:
        """Everything that was sent, decoded, in order."""
        return [decode_command(parcel.body) for parcel in self.parcels]

    def first_in(self, span_s: int, names: list[str]) -> list[str]:
        self._check()
        first = [name for name in names if name not in self.lately]
        self.lately |= set(first)
        return first

    def _check(self) -> None:
        if self.broken:
            raise agents.NotSent("the broker is down")


@pytest.fixture(autouse=True)
def gateway(db: None, monkeypatch: pytest.MonkeyPatch) -> FakeGateway:
    """What the nodes would have got."""
    fake = FakeGateway()
    for name in ("send", "withdraw", "renew", "first_in"):
        monkeypatch.setattr(agents, name, getattr(fake, name))
    return fake


@pytest.fixture(autouse=True)
def enqueued(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the tasks that Celery would have got, not yet coalesced."""
    sent: list[str] = []
    monkeypatch.setattr(enqueue, "_ask_once", lambda: sent.append(enqueue.DISPATCH))
    return sent


@pytest.fixture
def now() -> datetime:
    """A moment that only moves when a test moves it."""
    return NOW
