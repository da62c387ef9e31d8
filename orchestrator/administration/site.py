"""The administration's index: our rows in our order, what belongs to others after them."""

from typing import Any

from django.http import HttpRequest
from unfold.sites import UnfoldAdminSite

ORDER = ("Cluster", "Node", "Job", "Event", "User", "ApiToken")


class Site(UnfoldAdminSite):
    """`django.contrib.admin.site` of this installation (`dashboard/config/admin_site.py`)."""

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[dict[str, Any]]:
        """Clusters first, failed sign-ins last."""
        found: list[dict[str, Any]] = super().get_app_list(request, app_label)
        for app in found:
            app["models"].sort(key=lambda model: _place(model["object_name"]))
        return sorted(found, key=lambda app: min(_place(model["object_name"]) for model in app["models"]))


def _place(name: str) -> int:
    return ORDER.index(name) if name in ORDER else len(ORDER)
