"""What happened and who did it: jobs and events to read, tokens to read and revoke."""

from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from orchestrator.administration.base import LookedAt, may_administer
from orchestrator.models import ApiToken, Job


class JobAdmin(LookedAt):
    """Jobs as they stand. They are stopped on their own page."""

    list_display = ("id", "name", "owner", "cluster", "strategy", "status", "attempt", "created_at", "page")
    list_filter = ("status", "strategy", "cluster")
    search_fields = ("name", "owner__username")
    list_select_related = ("owner", "cluster")
    ordering = ("-id",)
    fields = (
        *("page", "name", "owner", "cluster", "recipe", "strategy", "status", "cause", "reason", "waiting_for"),
        *("attempt", "priority", "spec", "created_at", "started_at", "ended_at"),
    )

    @admin.display(description="Page")
    def page(self, job: Job) -> SafeString:
        """The way to the job's page."""
        return format_html('<a href="{}">Open j-{}</a>', reverse("job", args=[job.pk]), job.pk)


class EventAdmin(LookedAt):
    """The audit trail, newest first."""

    list_display = ("at", "kind", "text", "actor", "job", "node")
    list_filter = ("kind", "at")
    search_fields = ("text", "actor__username")
    list_select_related = ("actor", "job", "node")
    ordering = ("-id",)
    fields = ("at", "kind", "text", "actor", "job", "attempt", "node")


class ApiTokenAdmin(LookedAt):
    """Who has tokens and when each was last used. The token itself is nowhere; deleting it revokes it."""

    list_display = ("name", "user", "created_at", "last_used_at")
    search_fields = ("name", "user__username")
    list_select_related = ("user",)
    ordering = ("-id",)
    fields = ("name", "user", "created_at", "last_used_at")

    def has_delete_permission(self, request: HttpRequest, obj: ApiToken | None = None) -> bool:
        """Administrators revoke any token."""
        return may_administer(request)
