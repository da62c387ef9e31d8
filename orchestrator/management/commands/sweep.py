"""`manage.py sweep`: the loop around `services/sweep/reconcile.py`. Ends cleanly on SIGTERM and Ctrl-C."""

import logging
import signal
from datetime import UTC, datetime

from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import DatabaseError, close_old_connections, connection

from orchestrator.end_signals import EndSignals
from orchestrator.models import ServiceBeat
from orchestrator.services.sweep import reconcile

logger = logging.getLogger(__name__)


class Command(BaseCommand):
    """Converge, every few seconds."""

    help = "Runs the sweep: waiting jobs, unanswered commands, silent nodes, gangs to finish, time limits."

    def handle(self, *args: object, **options: object) -> None:
        """Sweep until told to end."""
        end = EndSignals(signal.SIGTERM, signal.SIGINT)
        logger.info("the sweep runs every %g s", settings.SWEEP_EVERY_S)
        while not end.is_set():
            self.step()
            end.wait(settings.SWEEP_EVERY_S)
        connection.close()

    def step(self) -> None:
        """One sweep. A database that is down is waited for."""
        try:
            now = datetime.now(UTC)
            reconcile.beat(name=ServiceBeat.SWEEP, now=now)
            reconcile.sweep(now=now)
        except DatabaseError:
            logger.exception("the database did not answer; the sweep goes on")
        close_old_connections()
