"""Clusters and the list of nodes: who is there, what they have, who holds what; administrators register and add."""

from datetime import UTC, datetime

from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from dashboard.requests import SignedIn
from dashboard.views.answers import page
from dashboard.views.machines import machine_rows
from dashboard.views.machines.cluster_form import ClusterForm
from dashboard.views.once import forget, hand_over, received
from orchestrator.queries import machines, telemetry
from orchestrator.queries.machines import Fleet
from orchestrator.queries.rows import Cluster
from orchestrator.services.errors import Invalid
from orchestrator.services.nodes import joining
from orchestrator.services.nodes import nodes as node_services
from worker_agent.protocol.states import NodeState

JOIN = "join_command"
NODES_SHOWN = 50
CURVE_S = 900
CURVE_POINTS = 48


@require_http_methods(["GET", "HEAD", "POST"])
@page
def clusters(request: SignedIn) -> HttpResponse:
    """All clusters; administrators register one by POST, which leads to its page with the first join command."""
    form = ClusterForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and (created := _registered(request, form)):
        return _with_join_command(request, created)
    found = list(machines.clusters(request.user))
    fleets = machines.fleets(request.user)
    context = {
        "clusters": [_summary(each, fleets.get(each.name, Fleet())) for each in found],
        "form": form,
        "general": form.errors.get("", ""),
        "refused": bool(form.errors),
    }
    return render(request, "dashboard/clusters/page.html", context, status=422 if form.errors else 200)


@never_cache
@require_safe
@page
def cluster(request: SignedIn, name: str) -> HttpResponse:
    """One cluster: its nodes and their devices; a join command that was just made is shown this once."""
    found = machines.cluster(request.user, name)
    command = received(request, name=JOIN)
    shown = {"join_command": command, "join_loopback": joining.public_url_is_loopback()}
    context = {**_cluster_state(request, found), **shown}
    return forget(render(request, "dashboard/cluster/page.html", context), name=JOIN)


@require_safe
@page
def cluster_state(request: SignedIn, name: str) -> HttpResponse:
    """The parts of the cluster page that change with its nodes."""
    found = machines.cluster(request.user, name)
    return render(request, "dashboard/cluster/_state.html", _cluster_state(request, found))


@require_POST
@page
def cluster_join(request: SignedIn, name: str) -> HttpResponse:
    """A new one-time token, shown on the cluster's page as the command for the machine."""
    return _with_join_command(request, machines.cluster(request.user, name))


@require_safe
def nodes(request: SignedIn) -> HttpResponse:
    """Every node of every cluster."""
    return render(request, "dashboard/nodes/page.html", _nodes_state(request))


@require_safe
def nodes_state(request: SignedIn) -> HttpResponse:
    """The part of the node list that changes."""
    return render(request, "dashboard/nodes/_state.html", _nodes_state(request))


def _registered(request: SignedIn, form: ClusterForm) -> Cluster | None:
    fields = form.request()
    if form.errors:
        return None
    try:
        return node_services.create_cluster(**fields, by=request.user)
    except Invalid as refused:
        form.refuse(refused.errors)
        return None


def _with_join_command(request: SignedIn, cluster: Cluster) -> HttpResponse:
    token = joining.create_join_token(cluster=cluster, by=request.user)
    answer = redirect(reverse("cluster", args=[cluster.name]) + "#join")
    return hand_over(request, answer, name=JOIN, value=joining.join_command(token))


def _cluster_state(request: SignedIn, cluster: Cluster) -> dict[str, object]:
    lost = machines.nodes(request.user, cluster).filter(state=NodeState.LOST.value)
    return {**_nodes_state(request, cluster), "cluster": cluster, "lost": lost}


def _nodes_state(request: SignedIn, cluster: Cluster | None = None) -> dict[str, object]:
    """A page of the nodes of a cluster, or of all, and what all of them have."""
    fleet = sum(machines.fleets(request.user, cluster).values(), Fleet())
    shown = Paginator(machines.nodes(request.user, cluster), NODES_SHOWN).get_page(request.GET.get("page"))
    nodes = list(shown)
    slots = machines.slots(nodes)
    load = telemetry.load(nodes, names=["cpu_percent"], seconds=CURVE_S, points=CURVE_POINTS)
    curves = {node_id: series["cpu_percent"].values for node_id, series in load.items() if "cpu_percent" in series}
    now = datetime.now(UTC)
    return {
        "rows": [machine_rows.row(node, slots[node.pk], curves.get(node.pk, []), now=now) for node in nodes],
        "shown": shown,
        "devices_total": machine_rows.devices_total(fleet.kinds),
        "counts": fleet.devices,
        "any_gpu": bool(fleet.kinds["gpu"]),
    }


def _summary(cluster: Cluster, fleet: Fleet) -> dict[str, object]:
    return {
        "cluster": cluster,
        "devices_total": machine_rows.devices_total(fleet.kinds),
        "counts": fleet.devices,
        "lost": fleet.nodes[NodeState.LOST],
    }
