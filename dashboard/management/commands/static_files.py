"""`manage.py static_files`: prepare the static files for the web server. Run before each start; quick when nothing
changed.
"""

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from dashboard.config.static_preparation import prepare


class Command(BaseCommand):
    """Compressed, with hashed names, into the data folder."""

    help = "Prepare the static files (minified, compressed, with hashed names) in the data folder."

    # An image is built without a key or addresses.
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        """Say whether anything was to do."""
        done = prepare(Path(settings.STATIC_ROOT))
        self.stderr.write("Static files prepared" if done else "Static files are as they were")
