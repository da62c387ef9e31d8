"""`manage.py up`: a whole Trainyard on this machine, from Redis to two training agents, until Ctrl-C."""

import logging
import os
import signal
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from orchestrator.embedded import folder
from orchestrator.embedded.ports import PortInUse
from orchestrator.embedded.redis_server import NoRedis
from orchestrator.embedded.startup import Entrance, Installation, Options, StartFailed, Stopped
from orchestrator.end_signals import EndSignals

MOST_NODES = 16
NO_NODES = "Jobs wait until a machine joins"


class Command(BaseCommand):
    """Options, signals and words; the work is in `orchestrator/embedded/`."""

    help = "Start Trainyard here: Redis, database, web server, Celery worker, sweep, ingest and local agents."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The options of `make up`."""
        parser.add_argument("--data", type=Path, default=settings.DATA_DIR, help="data folder (default: %(default)s)")
        parser.add_argument("--port", type=int, default=8000, help="port of the web server; 0 takes a free one")
        parser.add_argument("--nodes", type=int, default=2, help="number of local agents (default: 2)")
        parser.add_argument("--no-demo", action="store_true", help="do not submit the demo job")
        parser.add_argument("--ready-file", type=Path, help="file that gets addresses and sign-in once all is there")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run until SIGINT or SIGTERM; a second one is not needed, ending is bounded."""
        wanted = _checked(options)
        # The start asks REST a few times a second; that is of no interest to anybody.
        logging.getLogger("httpx").setLevel(logging.WARNING)
        try:
            held = folder.lock(wanted.data)
        except folder.FolderInUse as error:
            raise CommandError(str(error)) from None
        stopping = EndSignals(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        try:
            installation = Installation(
                wanted, root=settings.BASE_DIR, own=dict(os.environ), say=self._say, stopping=stopping
            )
        except PortInUse as error:
            raise CommandError(str(error)) from None
        try:
            self._say(f"Starting Trainyard on {wanted.data}")
            self._welcome(installation.start(), wanted)
            installation.run()
        except (StartFailed, NoRedis) as error:
            raise CommandError(str(error)) from None
        except Stopped:
            pass
        finally:
            self._say("Stopping: training first, then everything else")
            installation.stop()
            held.close()
            self._say("Stopped")

    def _welcome(self, entrance: Entrance, wanted: Options) -> None:
        password = entrance.password or "(as you changed it)"
        lines = ["", f"  Trainyard   {entrance.url}/", f"  Sign in     {entrance.username}  {password}"]
        if entrance.demo:
            lines.append(f"  Demo job    {entrance.demo}")
        if not wanted.nodes:
            lines.append(f"  Nodes       {NO_NODES}{'; the demo job was not submitted' if wanted.demo else ''}")
        onward = "  Ctrl-C stops everything. The data stays: at the next start, jobs go on from their checkpoints."
        self._say("\n".join([*lines, "", onward, ""]))

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()


def _checked(options: dict[str, Any]) -> Options:
    if not 0 <= options["nodes"] <= MOST_NODES:
        raise CommandError(f"--nodes takes 0 to {MOST_NODES}.")
    if not 0 <= options["port"] <= 65535:
        raise CommandError("--port takes 0 to 65535.")
    ready_file = options["ready_file"]
    return Options(
        data=options["data"].expanduser().absolute(),
        port=options["port"],
        nodes=options["nodes"],
        demo=not options["no_demo"],
        zygote_idle_s=settings.ZYGOTE_IDLE_S,
        ready_file=ready_file.expanduser().absolute() if ready_file else None,
    )
