"""People: adding them with a password, their role, switching them off. Somebody always remains who may administer."""

from typing import Any

from django.contrib.auth.admin import UserAdmin
from django.http import HttpRequest
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from orchestrator.administration.base import Administered, may_administer
from orchestrator.models import User, UserRole

LAST = "This is the last administrator. Make somebody else one first."


class PersonChangeForm(UserChangeForm):
    """A change of a person that leaves somebody to administer."""

    def clean(self) -> dict[str, Any]:
        """Refuse to demote or switch off the last administrator."""
        values: dict[str, Any] = super().clean() or self.cleaned_data
        keeps = values.get("role", self.instance.role) == UserRole.ADMINISTRATOR and values.get("is_active", True)
        if not keeps and is_last_administrator(self.instance):
            self.add_error("role" if values.get("role") != UserRole.ADMINISTRATOR else "is_active", LAST)
        return values


class PersonAdmin(Administered, UserAdmin):
    """People and roles. Who owns jobs cannot be deleted, so that history keeps its names: switch them off instead."""

    form = PersonChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    list_display = ("username", "role", "is_active", "email", "last_login")
    list_filter = ("role", "is_active")
    search_fields = ("username", "email", "first_name", "last_name")
    ordering = ("username",)
    filter_horizontal = ()
    readonly_fields = ("last_login", "date_joined")
    fieldsets = (
        (None, {"fields": ("username", "password", "role", "is_active")}),
        ("Person", {"fields": ("first_name", "last_name", "email")}),
        ("Dates", {"fields": ("last_login", "date_joined")}),
    )
    add_fieldsets = ((None, {"fields": ("username", "role", "password1", "password2")}),)

    def has_delete_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        """Not oneself, not the last administrator, not who owns jobs."""
        if not may_administer(request):
            return False
        return obj is None or not (obj.pk == request.user.pk or is_last_administrator(obj) or obj.jobs.exists())


def is_last_administrator(user: User) -> bool:
    """Whether nobody could administer without this person."""
    administrators = User.objects.filter(role=UserRole.ADMINISTRATOR, is_active=True)
    return list(administrators.values_list("pk", flat=True)[:2]) == [user.pk]
