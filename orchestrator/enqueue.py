"""The names of the control plane's Celery tasks, sent by name when the transaction commits.

A broker that is down costs time only: the sweep finds every job that waits, by its row.
"""

import logging
from functools import partial

from celery import current_app
from celery.utils.nodenames import worker_direct
from django.db import transaction
from kombu.exceptions import OperationalError

logger = logging.getLogger(__name__)

CONTROL_QUEUE = "control"
DISPATCH_JOB = "trainyard.dispatch_job"
DISPATCH_WAITING = "trainyard.dispatch_waiting"
ANSWER = "trainyard.answer"
EXPIRES_S = 60.0


def ask_to_dispatch(job_id: int) -> None:
    """Place this job now."""
    transaction.on_commit(partial(_send, DISPATCH_JOB, job_id=job_id))


def ask_to_dispatch_waiting() -> None:
    """Something became free: try every waiting job."""
    transaction.on_commit(partial(_send, DISPATCH_WAITING))


def ask_worker(worker: str, *, answer_to: str) -> None:
    """Have this worker, and no other, answer in Redis; raises `OperationalError` when the broker is down."""
    _put(ANSWER, worker_direct(worker), answer_to=answer_to)


def _put(name: str, queue: object, **arguments: object) -> None:
    current_app.send_task(name, kwargs=arguments, queue=queue, expires=EXPIRES_S, ignore_result=True)


def _send(name: str, **arguments: int) -> None:
    try:
        _put(name, CONTROL_QUEUE, **arguments)
    except (OperationalError, OSError) as error:
        logger.warning("task %s was not sent, the sweep will do its work: %s", name, error)
