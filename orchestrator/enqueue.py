"""The names of the control plane's Celery tasks, sent by name when the transaction commits.

A broker that is down costs time only: the sweep finds every job that waits, by its row.
"""

import logging
from functools import lru_cache, partial

from celery import current_app
from celery.utils.nodenames import worker_direct
from django.conf import settings
from django.db import transaction
from kombu.exceptions import OperationalError
from redis import Redis, RedisError

logger = logging.getLogger(__name__)

CONTROL_QUEUE = "control"
DISPATCH = "trainyard.dispatch"
ANSWER = "trainyard.answer"
LOOK_FOR_SLOWNESS = "trainyard.look_for_slowness"
EXPIRES_S = 60.0
# Set while a pass has been asked for and has not begun: one is enough for all who ask. If the task is lost, the mark
# goes by itself.
ASKED_KEY = "trainyard:dispatch:asked"
ASKED_S = 5
# A job's steps are looked at once in so many seconds, whatever its processes tell.
SLOWNESS_KEY = "trainyard:slowness:"
SLOWNESS_S = 8
REDIS_TIMEOUT_S = 2.0


def ask_to_dispatch() -> None:
    """A job waits, or something became free: have every waiting job tried."""
    transaction.on_commit(_ask_once)


def dispatch_begins() -> None:
    """A pass is about to read the queue: who asks from now on asks for the next one."""
    try:
        _redis(settings.REDIS_URL).delete(ASKED_KEY)
    except (RedisError, OSError) as error:
        logger.warning("the mark of a pass stays for %s s: %s", ASKED_S, error)


def ask_for_slowness(job_id: int) -> None:
    """Parts of a job's steps were stored: have them looked at. Without a broker nobody does until the next ones."""
    transaction.on_commit(partial(_look_once, job_id))


def ask_worker(worker: str, *, answer_to: str) -> None:
    """Have this worker, and no other, answer in Redis; raises `OperationalError` when the broker is down."""
    _put(ANSWER, worker_direct(worker), answer_to=answer_to)


def _put(name: str, queue: object, **arguments: object) -> None:
    current_app.send_task(name, kwargs=arguments, queue=queue, expires=EXPIRES_S, ignore_result=True)


def _ask_once() -> None:
    try:
        if _redis(settings.REDIS_URL).set(ASKED_KEY, "", nx=True, ex=ASKED_S):
            _put(DISPATCH, CONTROL_QUEUE)
    except (OperationalError, RedisError, OSError) as error:
        logger.warning("no pass over the waiting jobs was asked for, the sweep will make one: %s", error)


def _look_once(job_id: int) -> None:
    try:
        if _redis(settings.REDIS_URL).set(f"{SLOWNESS_KEY}{job_id}", "", nx=True, ex=SLOWNESS_S):
            _put(LOOK_FOR_SLOWNESS, CONTROL_QUEUE, job_id=job_id)
    except (OperationalError, RedisError, OSError) as error:
        logger.warning("the steps of j-%s are not looked at: %s", job_id, error)


@lru_cache(maxsize=1)
def _redis(url: str) -> Redis:
    return Redis.from_url(url, socket_timeout=REDIS_TIMEOUT_S, socket_connect_timeout=REDIS_TIMEOUT_S)
