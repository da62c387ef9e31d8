"""Celery's door handles of the control plane: each body is one service call. Sent by name from `enqueue.py`."""

from datetime import UTC, datetime

from celery import shared_task

from orchestrator import enqueue
from orchestrator.services.jobs import dispatch


@shared_task(name=enqueue.DISPATCH_JOB, ignore_result=True)
def dispatch_job(job_id: int) -> None:
    """Place one job."""
    dispatch.dispatch_job(job_id=job_id, now=datetime.now(UTC))


@shared_task(name=enqueue.DISPATCH_WAITING, ignore_result=True)
def dispatch_waiting() -> None:
    """Place whatever fits now."""
    dispatch.dispatch_waiting(now=datetime.now(UTC))
