"""Django's entry for the web face."""

from importlib import import_module

from django.apps import AppConfig


class DashboardConfig(AppConfig):
    """Pages, sockets and REST."""

    name = "dashboard"

    def ready(self) -> None:
        """Register the system checks, and the Celery application through which every process sends its tasks."""
        import_module("dashboard.checks")
        import_module("dashboard.config.celery")
