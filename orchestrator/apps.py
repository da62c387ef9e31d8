"""Django's entry for the control plane."""

from django.apps import AppConfig


class OrchestratorConfig(AppConfig):
    """The control plane's tables and commands."""

    name = "orchestrator"
    verbose_name = "Trainyard"
    default_auto_field = "django.db.models.BigAutoField"
