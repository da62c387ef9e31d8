"""Clusters and nodes in the administration. Every change is one call of `services/nodes/nodes.py`; the state is read-
only.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from orchestrator.administration.base import Administered, LookedAt, person
from orchestrator.domain.words import counted
from orchestrator.models import Cluster, Node
from orchestrator.services.errors import Conflict, Invalid, words_of
from orchestrator.services.nodes import nodes

CONFIRM_TEMPLATE = "admin/orchestrator/node/confirm.html"


class Change(NamedTuple):
    """What an administrator does to each chosen node, after a question where it `asks`."""

    act: Callable[..., object]
    done: str
    description: str
    asks: bool = False


CHANGES = {
    "cordon": Change(nodes.cordon, "cordoned", "Cordon: place nothing new, running jobs continue"),
    "uncordon": Change(nodes.uncordon, "taking jobs again", "Uncordon: take jobs again"),
    "drain": Change(nodes.drain, "draining", "Drain: place nothing new, stay cordoned once empty…", asks=True),
    "reclaim": Change(nodes.reclaim, "used as a whole again", "Reclaim: use devices and ports that were not released"),
    "remove": Change(nodes.remove, "removed", "Remove: forget the node and its key…", asks=True),
}


class ClusterAdmin(LookedAt):
    """Clusters. They are registered, changed and deleted on their own pages."""

    list_display = ("name", "description", "address_range", "ports", "node_count", "page")
    search_fields = ("name", "description")
    fields = (
        *("name", "page", "description", "address_range", "interface", "port_first", "port_last"),
        *("checkpoint_place", "environment", "created_at"),
    )

    @admin.display(description="Ports")
    def ports(self, cluster: Cluster) -> str:
        """`20000-20999`."""
        return f"{cluster.port_first}-{cluster.port_last}"

    @admin.display(description="Page")
    def page(self, cluster: Cluster) -> SafeString:
        """The way to its settings."""
        return format_html('<a href="{}">Settings</a>', reverse("cluster_settings", args=[cluster.name]))


class NodeAdmin(Administered):
    """Nodes. They come by joining and go by "Remove"; only the name is edited here."""

    list_display = ("name", "cluster", "state", "address", "devices_in_words", "last_seen_at", "page")
    list_filter = ("state", "cluster")
    search_fields = ("name", "address")
    list_select_related = ("cluster",)
    fields = (
        *("name", "page", "cluster", "address", "state", "state_reason", "devices_in_words", "not_given_back"),
        *("inventory", "last_seen_at", "joined_at"),
    )
    readonly_fields = fields[1:]

    # Nobody adds one: machines join by themselves, with a command of their cluster.
    has_add_permission = Administered.has_delete_permission

    def save_model(self, request: HttpRequest, obj: Node, form: Any, change: Any) -> None:
        """A new name, through the service."""
        if "name" not in form.changed_data:
            return
        try:
            nodes.rename(node_id=obj.pk, name=obj.name, by=person(request))
        except (Conflict, Invalid) as refused:
            obj.refresh_from_db()
            messages.error(request, f"The name was not changed. {words_of(refused)}")

    @admin.display(description="Devices")
    def devices_in_words(self, node: Node) -> str:
        """How many of which device."""
        kinds = Counter(device.name if device.kind == "gpu" else "CPU slot" for device in node.devices)
        return ", ".join(f"{number} \u00d7 {kind}" for kind, number in kinds.items()) or "none reported"

    @admin.display(description="Not released")
    def not_given_back(self, node: Node) -> str:
        """Devices and ports that are not used, and what was left there."""
        return "; ".join(f"{each.name}: {', '.join(each.left)}" for each in node.not_used) or "nothing"

    @admin.display(description="Page")
    def page(self, node: Node) -> SafeString:
        """The way to the node's page."""
        return format_html('<a href="{}">Open</a>', reverse("node", args=[node.pk]))

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """What is done to each chosen node."""
        return {name: (partial(_carry_out, name), name, change.description) for name, change in CHANGES.items()}


def _carry_out(name: str, page: NodeAdmin, request: HttpRequest, queryset: QuerySet[Node]) -> HttpResponse | None:
    change = CHANGES[name]
    if change.asks and "confirmed" not in request.POST:
        return _confirm(name, page, request, queryset)
    for node in queryset.order_by("name"):
        try:
            change.act(node_id=node.pk, by=person(request))
        except (Conflict, Invalid) as refused:
            messages.error(request, words_of(refused))
        else:
            messages.success(request, f"{node.name} is {change.done}.")
    return None


def _confirm(name: str, page: NodeAdmin, request: HttpRequest, queryset: QuerySet[Node]) -> HttpResponse:
    verb = name.capitalize()
    context = page.admin_site.each_context(request) | {
        "title": f"{verb} {counted(queryset.count(), 'node')}?",
        "opts": page.opts,
        "nodes": queryset.order_by("name"),
        "action": name,
        "verb": verb,
        "back": reverse("admin:orchestrator_node_changelist"),
    }
    return TemplateResponse(request, CONFIRM_TEMPLATE, context)
