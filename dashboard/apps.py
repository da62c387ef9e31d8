"""Django's entry for the web face."""

from importlib import import_module

from django.apps import AppConfig


class DashboardConfig(AppConfig):
    """Pages, sockets and REST."""

    name = "dashboard"

    def ready(self) -> None:
        """Register the system checks."""
        import_module("dashboard.checks")
