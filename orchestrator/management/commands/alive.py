"""`manage.py alive sweep|ingest`: whether that loop has beaten lately; the health check of its container."""

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from orchestrator.models import ServiceBeat

SILENT_AFTER = timedelta(seconds=30)


class Command(BaseCommand):
    """Exit status 0 when the loop is alive, 1 with the reason otherwise."""

    help = "Check that a loop of the control plane has beaten within the last 30 seconds."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Which loop."""
        parser.add_argument("name", choices=["sweep", "ingest"])

    def handle(self, *args: Any, name: str, **options: Any) -> None:
        """Look at the beat."""
        beat = ServiceBeat.objects.filter(name=name).first()
        if beat is None:
            raise CommandError(f"{name} has never run.")
        if timezone.now() - beat.beat_at > SILENT_AFTER:
            raise CommandError(f"{name} has been silent since {beat.beat_at:%H:%M:%S} UTC.")
        self.stdout.write("alive")
