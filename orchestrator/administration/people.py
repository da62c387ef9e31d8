"""People, to look at. They are added and changed on their own pages; who has no jobs is deleted here."""

from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from orchestrator.administration.base import LookedAt, may_administer, person
from orchestrator.models import User
from orchestrator.services import people


class PersonAdmin(LookedAt):
    """People and roles. Who owns jobs cannot be deleted, so that history keeps its names."""

    list_display = ("username", "role", "is_active", "email", "last_login", "page")
    list_filter = ("role", "is_active")
    search_fields = ("username", "email")
    ordering = ("username",)
    fields = ("username", "page", "role", "is_active", "email", "last_login", "date_joined")

    @admin.display(description="Page")
    def page(self, user: User) -> SafeString:
        """The way to the person's page."""
        return format_html('<a href="{}">Open</a>', reverse("person", args=[user.pk]))

    def has_delete_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        """Not oneself, not who owns jobs."""
        return may_administer(request) and (obj is None or not (obj.pk == request.user.pk or obj.jobs.exists()))

    def delete_model(self, request: HttpRequest, obj: User) -> None:
        """Through the service, which records who did it."""
        people.delete_person(person_id=obj.pk, by=person(request))
