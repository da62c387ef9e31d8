"""Clusters and nodes in the administration. Every change is one call of `services/nodes/nodes.py`; the state is read-
only.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.decorators import action
from unfold.widgets import UnfoldAdminTextareaWidget

from orchestrator.administration.base import Administered, may_administer, person
from orchestrator.models import Cluster, Node
from orchestrator.services.errors import Conflict, Invalid, words_of
from orchestrator.services.nodes import joining, nodes

JOIN_TEMPLATE = "admin/orchestrator/cluster/join.html"
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


class EnvironmentField(forms.CharField):
    """A mapping written as lines `NAME=value`."""

    widget = UnfoldAdminTextareaWidget

    def prepare_value(self, value: Any) -> Any:
        """The mapping as lines; what was typed stays as typed."""
        return "\n".join(f"{name}={text}" for name, text in value.items()) if isinstance(value, dict) else value

    def clean(self, value: Any) -> dict[str, str]:
        """The lines as a mapping."""
        found: dict[str, str] = {}
        for number, line in enumerate((super().clean(value) or "").splitlines(), start=1):
            name, equals, text = line.partition("=")
            if line.strip() and not equals:
                raise forms.ValidationError(f"Line {number} is not of the form NAME=value.")
            if line.strip():
                found[name.strip()] = text.strip()
        return found


class ClusterForm(forms.ModelForm):
    """A cluster's columns."""

    environment = EnvironmentField(required=False, help_text="One NAME=value per line, for all processes.")

    class Meta:
        model = Cluster
        fields = (
            *("name", "description", "address_range", "interface", "port_first", "port_last"),
            *("checkpoint_place", "environment"),
        )


class ClusterAdmin(Administered):
    """Clusters. Saving a new one shows the command that its first machine is joined with."""

    form = ClusterForm
    fields = ClusterForm.Meta.fields
    list_display = ("name", "description", "address_range", "ports", "node_count")
    search_fields = ("name", "description")
    actions_detail = ("join_command",)

    def get_readonly_fields(self, request: HttpRequest, obj: Cluster | None = None) -> tuple[str, ...]:
        """Jobs name their cluster, so its name stays once there are any."""
        return ("name",) if obj is not None and obj.jobs.exists() else ()

    def save_model(self, request: HttpRequest, obj: Cluster, form: Any, change: Any) -> None:
        """Through the service, which records who did it."""
        if change:
            nodes.update_cluster(cluster=Cluster.objects.get(pk=obj.pk), by=person(request), **form.cleaned_data)
        else:
            obj.pk = nodes.create_cluster(by=person(request), **form.cleaned_data).pk

    def delete_model(self, request: HttpRequest, obj: Cluster) -> None:
        """Through the service, which records who did it."""
        nodes.delete_cluster(cluster=obj, by=person(request))

    def response_add(self, request: HttpRequest, obj: Cluster, post_url_continue: Any = None) -> HttpResponse:
        """The join command of the new cluster."""
        return self._show_command(request, obj)

    @action(description="Add a node", url_path="join", icon="add")
    def join_command(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """By POST a new one-time token, shown as the command for the machine."""
        if not may_administer(request):
            return HttpResponse(status=403)
        cluster = get_object_or_404(Cluster, pk=object_id)
        if request.method == "POST":
            return self._show_command(request, cluster)
        return self._join_page(request, cluster, command="")

    def has_delete_permission(self, request: HttpRequest, obj: Cluster | None = None) -> bool:
        """Only while it has neither nodes nor jobs."""
        return may_administer(request) and obj is not None and not obj.nodes.exists() and not obj.jobs.exists()

    @admin.display(description="Ports")
    def ports(self, cluster: Cluster) -> str:
        """`20000-20999`."""
        return f"{cluster.port_first}-{cluster.port_last}"

    def _show_command(self, request: HttpRequest, cluster: Cluster) -> HttpResponse:
        token = joining.create_join_token(cluster=cluster, by=person(request))
        return self._join_page(request, cluster, command=joining.join_command(token))

    def _join_page(self, request: HttpRequest, cluster: Cluster, *, command: str) -> HttpResponse:
        context = self.admin_site.each_context(request) | {
            "title": f"Add a node to {cluster.name}",
            "opts": self.opts,
            "cluster": cluster,
            "command": command,
            "back": reverse("admin:orchestrator_cluster_change", args=[cluster.pk]),
            "action": reverse("admin:orchestrator_cluster_join_command", args=[cluster.pk]),
        }
        response = TemplateResponse(request, JOIN_TEMPLATE, context)
        response.headers["Cache-Control"] = "no-store"
        return response


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
        "title": f"{verb} {queryset.count()} node{'' if queryset.count() == 1 else 's'}?",
        "opts": page.opts,
        "nodes": queryset.order_by("name"),
        "action": name,
        "verb": verb,
        "back": reverse("admin:orchestrator_node_changelist"),
    }
    return TemplateResponse(request, CONFIRM_TEMPLATE, context)
