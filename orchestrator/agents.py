"""The one seam to the nodes: a command goes out sealed with the node's key, through Celery, to the node's own queue.

A launch goes with a permit, without which no agent begins it (`protocol/commands.permit_key`), and which can be
withdrawn. `services/outbox.py` is the caller, after commit.
"""

import base64
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

from celery import current_app
from django.conf import settings
from kombu.exceptions import OperationalError
from redis import Redis, RedisError

from worker_agent.protocol.commands import COMMAND_TASK, PERMIT_S, PERMITTED, WITHDRAWN, permit_key, queue_name
from worker_agent.protocol.envelope import seal

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


def send(parcel: Parcel, *, now: datetime) -> None:
    """Hand it to queue `node.<id>`, or raise `NotSent`. The envelope expires, and so does the message in the queue."""
    expires = now + timedelta(seconds=settings.COMMAND_EXPIRY_S)
    envelope = seal(parcel.body, node_id=parcel.node_id, key=parcel.key, expires_at=expires.timestamp())
    with _broker() as redis:
        if parcel.launch is not None and not _permit(redis, permit_key(parcel.launch)):
            return
        current_app.send_task(
            COMMAND_TASK,
            kwargs={"envelope": base64.b64encode(envelope).decode()},
            queue=queue_name(parcel.node_id),
            expires=settings.COMMAND_EXPIRY_S,
            ignore_result=True,
        )


def first_in(span_s: int, names: list[str]) -> list[str]:
    """Those of `names` that nobody else has asked for within so many seconds, or raise `NotSent`."""
    with _broker() as redis, redis.pipeline(transaction=False) as pipeline:
        for name in names:
            pipeline.set(f"trainyard:lately:{name}", "", nx=True, ex=span_s)
        return [name for name, is_first in zip(names, pipeline.execute(), strict=True) if is_first]


def withdraw(launches: list[int]) -> None:
    """From now on no agent begins these launches (ids of their commands); or raise `NotSent`."""
    with _broker() as redis:
        for launch in launches:
            redis.set(permit_key(launch), WITHDRAWN, ex=math.ceil(settings.COMMAND_EXPIRY_S))


def renew(launches: list[int]) -> None:
    """Their permits last as if they were sent now, or raise `NotSent`. No value is written, so none comes back that was
    taken away."""
    with _broker() as redis, redis.pipeline(transaction=False) as pipeline:
        for launch in launches:
            pipeline.expire(permit_key(launch), _permit_s())
        pipeline.execute()


def _permit(redis: Redis, key: str) -> bool:
    """Permit it, or permit it for longer; False when it has been withdrawn, which is for good."""
    lasting_s = _permit_s()
    if redis.set(key, PERMITTED, ex=lasting_s, nx=True):
        return True
    if redis.get(key) == WITHDRAWN:
        return False
    redis.expire(key, lasting_s)
    return True


def _permit_s() -> int:
    return max(PERMIT_S, math.ceil(2 * settings.COMMAND_RESEND_S))


@contextmanager
def _broker() -> Iterator[Redis]:
    try:
        yield _redis(settings.REDIS_URL)
    except (OperationalError, RedisError, OSError) as error:
        raise NotSent(str(error)) from error


@lru_cache(maxsize=1)
def _redis(url: str) -> Redis:
    return Redis.from_url(url, socket_timeout=REDIS_TIMEOUT_S, socket_connect_timeout=REDIS_TIMEOUT_S)
