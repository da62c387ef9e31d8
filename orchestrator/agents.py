"""The one seam to the nodes: a command goes out sealed with the node's key, through Celery, to the node's own queue.

A launch goes with a permit, without which no agent begins it (`protocol/commands.permit_key`), and which can be
withdrawn. `services/outbox.py` is the caller, after commit. `FakeGateway` stands in for tests, put there by
`using`.
"""

import base64
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Protocol

from celery import current_app
from django.conf import settings
from kombu.exceptions import OperationalError
from redis import Redis, RedisError

from worker_agent.protocol.codec import decode_command
from worker_agent.protocol.commands import PERMIT_S, PERMITTED, WITHDRAWN, Command, permit_key, queue_name
from worker_agent.protocol.envelope import seal

COMMAND_TASK = "trainyard.agent.command"
REDIS_TIMEOUT_S = 2.0


class NotSent(Exception):
    """The broker did not take the message. The row stays, and the sweep sends it again."""


@dataclass(frozen=True)
class Parcel:
    """One encoded command for one node; a `launch` goes with its permit."""

    node_id: str
    key: bytes
    body: bytes
    launch: int | None = None


class AgentGateway(Protocol):
    """What can carry a command to a node."""

    def send(self, parcel: Parcel, *, now: datetime) -> None:
        """Hand it over, or raise `NotSent`."""

    def withdraw(self, launches: list[int]) -> None:
        """From now on no agent begins these launches (ids of their commands); or raise `NotSent`."""

    def renew(self, launches: list[int]) -> None:
        """Their permits last as if they were sent now; what is withdrawn or gone stays so. Or raise `NotSent`."""


class CeleryGateway:
    """Through the broker, to queue `node.<id>`. The envelope expires, and so does the message in the queue."""

    def send(self, parcel: Parcel, *, now: datetime) -> None:
        """Seal and send one command."""
        expires = now + timedelta(seconds=settings.COMMAND_EXPIRY_S)
        envelope = seal(parcel.body, node_id=parcel.node_id, key=parcel.key, expires_at=expires.timestamp())
        try:
            if parcel.launch is not None and not self._permit(permit_key(parcel.launch)):
                return
            current_app.send_task(
                COMMAND_TASK,
                kwargs={"envelope": base64.b64encode(envelope).decode()},
                queue=queue_name(parcel.node_id),
                expires=settings.COMMAND_EXPIRY_S,
                ignore_result=True,
            )
        except (OperationalError, RedisError, OSError) as error:
            raise NotSent(str(error)) from error

    def withdraw(self, launches: list[int]) -> None:
        """Take their permits away."""
        try:
            for launch in launches:
                self._redis.set(permit_key(launch), WITHDRAWN, ex=math.ceil(settings.COMMAND_EXPIRY_S))
        except (RedisError, OSError) as error:
            raise NotSent(str(error)) from error

    def renew(self, launches: list[int]) -> None:
        """Let what lies there lie for longer; no value is written, so none comes back that was taken away."""
        try:
            with self._redis.pipeline(transaction=False) as pipeline:
                for launch in launches:
                    pipeline.expire(permit_key(launch), _permit_s())
                pipeline.execute()
        except (RedisError, OSError) as error:
            raise NotSent(str(error)) from error

    def _permit(self, key: str) -> bool:
        """Permit it, or permit it for longer; False when it has been withdrawn, which is for good."""
        lasting_s = _permit_s()
        if self._redis.set(key, PERMITTED, ex=lasting_s, nx=True):
            return True
        if self._redis.get(key) == WITHDRAWN:
            return False
        self._redis.expire(key, lasting_s)
        return True

    @cached_property
    def _redis(self) -> Redis:
        return Redis.from_url(
            settings.REDIS_URL, socket_timeout=REDIS_TIMEOUT_S, socket_connect_timeout=REDIS_TIMEOUT_S
        )


def _permit_s() -> int:
    return max(PERMIT_S, math.ceil(2 * settings.COMMAND_RESEND_S))


class FakeGateway:
    """Keeps what it was given. `broken` makes it refuse, as a broker that is down does."""

    def __init__(self) -> None:
        self.parcels: list[Parcel] = []
        self.withdrawn: list[int] = []
        self.renewed: list[int] = []
        self.broken = False

    def send(self, parcel: Parcel, *, now: datetime) -> None:
        """Remember the parcel."""
        if self.broken:
            raise NotSent("the broker is down")
        self.parcels.append(parcel)

    def withdraw(self, launches: list[int]) -> None:
        """Remember them."""
        if self.broken:
            raise NotSent("the broker is down")
        self.withdrawn += launches

    def renew(self, launches: list[int]) -> None:
        """Remember them."""
        if self.broken:
            raise NotSent("the broker is down")
        self.renewed += launches

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
