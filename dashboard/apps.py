"""Django's entry for the web face."""

from django.apps import AppConfig


class DashboardConfig(AppConfig):
    """Pages, sockets and REST."""

    name = "dashboard"
