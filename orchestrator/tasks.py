"""Celery's door handles of the control plane: each body is one service call. Sent by name from `enqueue.py`."""

from datetime import UTC, datetime
from threading import Lock

from celery import shared_task
from django.conf import settings
from django.db import connection
from redis import Redis

from orchestrator import enqueue
from orchestrator.services.gang import slowness
from orchestrator.services.jobs import dispatch

# Two passes at once would try the same jobs. While one waits here, nobody asks for another.
_ONE_PASS = Lock()


@shared_task(name=enqueue.DISPATCH, ignore_result=True)
def dispatch_waiting() -> None:
    """Place whatever fits now."""
    with _ONE_PASS:
        enqueue.dispatch_begins()
        dispatch.dispatch_waiting(now=datetime.now(UTC))


@shared_task(name=enqueue.LOOK_FOR_SLOWNESS, ignore_result=True)
def look_for_slowness(job_id: int) -> None:
    """What holds a job up."""
    slowness.tell(job_id=job_id, now=datetime.now(UTC))


@shared_task(name=enqueue.ANSWER, ignore_result=True)
def answer(answer_to: str) -> None:
    """This worker takes tasks and reaches the database: whoever runs `manage.py alive celery` waits for the answer."""
    connection.ensure_connection()
    with Redis.from_url(settings.REDIS_URL) as redis:
        redis.rpush(answer_to, "alive")
        redis.expire(answer_to, int(enqueue.EXPIRES_S))
