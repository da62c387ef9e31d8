"""`manage.py alive sweep|ingest|celery`: whether that program does its work; the health check of its container."""

import secrets
import socket
from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone
from kombu.exceptions import OperationalError
from redis import Redis, RedisError

from orchestrator import enqueue
from orchestrator.models import ServiceBeat

SILENT_AFTER = timedelta(seconds=30)
ANSWER_WITHIN_S = 10


class Command(BaseCommand):
    """Exit status 0 when the program is alive, 1 with the reason otherwise."""

    help = (
        "Check that a loop of the control plane has beaten within the last 30 seconds, "
        "or that the Celery worker of this host answers within 10 seconds."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Which program."""
        parser.add_argument("name", choices=[ServiceBeat.SWEEP, ServiceBeat.INGEST, "celery"])

    def handle(self, *args: Any, name: str, **options: Any) -> None:
        """Ask the worker, or look at the loop's beat."""
        if name == "celery":
            _ask_worker(f"control@{socket.gethostname()}")
        else:
            _look_at_beat(name)
        self.stdout.write("alive")


def _ask_worker(worker: str) -> None:
    answer_to = f"trainyard:answer:{secrets.token_hex(8)}"
    try:
        enqueue.ask_worker(worker, answer_to=answer_to)
        with Redis.from_url(settings.REDIS_URL) as redis:
            answered = redis.blpop([answer_to], timeout=ANSWER_WITHIN_S)
    except (OperationalError, RedisError) as error:
        raise CommandError(f"Redis does not answer: {error}") from error
    if not answered:
        raise CommandError(f"{worker} did not answer within {ANSWER_WITHIN_S} s.")


def _look_at_beat(name: str) -> None:
    beat = ServiceBeat.objects.filter(name=name).first()
    if beat is None:
        raise CommandError(f"{name} has never run.")
    if timezone.now() - beat.beat_at > SILENT_AFTER:
        raise CommandError(f"{name} has been silent since {beat.beat_at:%H:%M:%S} UTC.")
