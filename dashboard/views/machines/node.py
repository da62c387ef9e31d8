"""One node: its load, devices and history; administrators cordon, drain, rename and remove it."""

from collections.abc import Callable
from datetime import UTC, datetime

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from dashboard.requests import SignedIn
from dashboard.views.answers import page, typed_name
from dashboard.views.machines import machine_rows
from orchestrator.queries import machines, telemetry
from orchestrator.queries.rows import Node
from orchestrator.services.errors import Conflict, Forbidden, Invalid, words_of
from orchestrator.services.nodes import nodes as node_services

CURVE_POINTS = 60
EVENTS_SHOWN = 30
REPLICAS_SHOWN = 30
# What asks for the node's name, typed: it ends or moves other people's work.
TYPED = frozenset({"drain", "remove"})
DONE = {
    "cordon": "{name} is cordoned. No new job is placed there; running jobs go on.",
    "uncordon": "{name} takes jobs again.",
    "drain": "{name} is draining. No new job is placed there; its jobs save and continue elsewhere, or finish.",
    "reclaim": "All devices and ports of {name} are used again.",
    "rename": "The node is now called {name}.",
    "remove": "{name} is removed. Its agent is refused from now on.",
}
ACTS: dict[str, Callable[..., object]] = {
    "cordon": node_services.cordon,
    "uncordon": node_services.uncordon,
    "drain": node_services.drain,
    "reclaim": node_services.reclaim,
    "remove": node_services.remove,
}


@require_safe
@page
def node(request: SignedIn, node_id: str) -> HttpResponse:
    """The node's page."""
    return render(request, "dashboard/node/page.html", _state(request, node_id))


@require_safe
@page
def node_state(request: SignedIn, node_id: str) -> HttpResponse:
    """The parts of the page that change with the node's state and what runs there."""
    return render(request, "dashboard/node/_state.html", _state(request, node_id))


@require_POST
@page
def node_action(request: SignedIn, node_id: str, action: str) -> HttpResponse:
    """One of the actions in `DONE`."""
    found = machines.node(request.user, node_id)
    if action not in DONE:
        raise Http404("There is no such action.")
    if not request.user.may_administer:
        raise Forbidden("Only administrators may change machines.")
    if action in TYPED and not typed_name(request, found.name):
        return redirect("node", node_id)
    try:
        name = _carry_out(request, found, action)
    except (Invalid, Conflict) as refused:
        messages.error(request, words_of(refused))
        return redirect("node", node_id)
    messages.success(request, DONE[action].format(name=name))
    return redirect("cluster", found.cluster.name) if action == "remove" else redirect("node", node_id)


def _carry_out(request: SignedIn, found: Node, action: str) -> str:
    """Do it; returns the node's name afterwards."""
    reason = request.POST.get("reason", "").strip()
    if action == "rename":
        name = request.POST.get("name", "").strip()
        node_services.rename(node_id=found.pk, name=name, by=request.user)
        return name
    ACTS[action](node_id=found.pk, by=request.user, reason=reason)
    return found.name


def _state(request: SignedIn, node_id: str) -> dict[str, object]:
    found = machines.node(request.user, node_id)
    slots = machines.slots([found])
    replicas = machines.node_replicas(found, limit=REPLICAS_SHOWN)
    now = datetime.now(UTC)
    kinds = {slot.kind for slot in slots[found.pk]}
    return {
        "node": found,
        "beat": machine_rows.ago(found.last_seen_at, now),
        "devices": machine_rows.devices_in_words(found.devices),
        "tiles": machine_rows.device_tiles(found, slots[found.pk]),
        "counts": machine_rows.counts(slots),
        "figures": machine_rows.figures(found, telemetry.load([found], points=CURVE_POINTS)[found.pk]),
        "has_gpu": "gpu" in kinds,
        "dirty": found.not_used,
        "running": [replica for replica in replicas if replica.held],
        "past": [replica for replica in replicas if not replica.held],
        "events": machines.node_events(found, limit=EVENTS_SHOWN),
    }
