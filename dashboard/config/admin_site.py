"""Django's administration with our site in the place of its own. Named in `INSTALLED_APPS`."""

from django.contrib.admin.apps import AdminConfig


class AdministrationConfig(AdminConfig):
    """The administration."""

    default_site = "orchestrator.administration.site.Site"
