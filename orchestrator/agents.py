"""The one seam to the nodes: a command goes out sealed with the node's key, through Celery, to the node's own queue.

`services/outbox.py` is the caller, after commit. `FakeGateway` stands in for tests; `using` puts it in place.
"""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from celery import current_app
from django.conf import settings
from kombu.exceptions import OperationalError

from worker_agent.protocol.codec import decode_command
from worker_agent.protocol.commands import Command, queue_of
from worker_agent.protocol.envelope import seal

COMMAND_TASK = "trainyard.agent.command"


class NotSent(Exception):
    """The broker did not take the message. The row stays, and the sweep sends it again."""


@dataclass(frozen=True)
class Parcel:
    """One encoded command for one node."""

    node_id: str
    key: bytes
    body: bytes


class AgentGateway(Protocol):
    """What can carry a command to a node."""

    def send(self, parcel: Parcel, *, now: datetime) -> None:
        """Hand it over, or raise `NotSent`."""


class CeleryGateway:
    """Through the broker, to queue `node.<id>`. The envelope expires, and so does the message in the queue."""

    def send(self, parcel: Parcel, *, now: datetime) -> None:
        """Seal and send one command."""
        expires = now + timedelta(seconds=settings.COMMAND_EXPIRY_S)
        envelope = seal(parcel.body, node_id=parcel.node_id, key=parcel.key, expires_at=expires.timestamp())
        try:
            current_app.send_task(
                COMMAND_TASK,
                kwargs={"envelope": base64.b64encode(envelope).decode()},
                queue=queue_of(parcel.node_id),
                expires=settings.COMMAND_EXPIRY_S,
                ignore_result=True,
            )
        except (OperationalError, OSError) as error:
            raise NotSent(str(error)) from error


class FakeGateway:
    """Keeps what it was given. `broken` makes it refuse, as a broker that is down does."""

    def __init__(self) -> None:
        self.parcels: list[Parcel] = []
        self.broken = False

    def send(self, parcel: Parcel, *, now: datetime) -> None:
        """Remember the parcel."""
        if self.broken:
            raise NotSent("the broker is down")
        self.parcels.append(parcel)

    @property
    def commands(self) -> list[Command]:
        """Everything that was sent, decoded, in order."""
        return [decode_command(parcel.body) for parcel in self.parcels]


_gateway: AgentGateway = CeleryGateway()


def gateway() -> AgentGateway:
    """The gateway in place."""
    return _gateway


@contextmanager
def using(replacement: AgentGateway) -> Iterator[None]:
    """Put another gateway in place, for tests."""
    global _gateway
    before, _gateway = _gateway, replacement
    try:
        yield
    finally:
        _gateway = before
