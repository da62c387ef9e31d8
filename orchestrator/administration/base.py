"""What all admin pages share: who may do what, and no way around the services."""

from typing import Any

from django.http import HttpRequest
from unfold.admin import ModelAdmin

from orchestrator.models import User


def may_administer(request: HttpRequest) -> bool:
    """Whether the person is an administrator who is switched on."""
    user = request.user
    return bool(user.is_active and getattr(user, "may_administer", False))


def person(request: HttpRequest) -> User:
    """Who acts: the site of the administration is shown to nobody who is not signed in."""
    assert isinstance(request.user, User)
    return request.user


class Administered(ModelAdmin):
    """Rows that administrators see and change. Deleting in bulk is off: each removal has its own rules."""

    list_per_page = 50
    compressed_fields = True
    show_full_result_count = False

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Only administrators."""
        return may_administer(request)

    has_module_permission = has_add_permission = has_change_permission = has_view_permission

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody, unless a page says otherwise."""
        return False

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Without Django's own deletion of many rows at once."""
        actions: dict[str, Any] = super().get_actions(request)
        actions.pop("delete_selected", None)
        return actions


class LookedAt(Administered):
    """Rows that can only be read."""

    has_add_permission = has_change_permission = Administered.has_delete_permission
