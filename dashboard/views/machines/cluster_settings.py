"""The settings of one cluster, for administrators: changed here, with the event that says what was before."""

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from dashboard.requests import SignedIn
from dashboard.views.answers import for_administrators, page, typed_name
from dashboard.views.machines.cluster_form import ClusterForm
from orchestrator.queries import machines
from orchestrator.queries.rows import Cluster
from orchestrator.services.errors import Conflict, Invalid
from orchestrator.services.nodes import nodes as node_services


@require_http_methods(["GET", "HEAD", "POST"])
@page
@for_administrators
def cluster_settings(request: SignedIn, name: str) -> HttpResponse:
    """The form, and by POST its changes."""
    found = machines.cluster(request.user, name)
    form = ClusterForm(request.POST) if request.method == "POST" else ClusterForm.of(found)
    if request.method == "POST" and (changed := _saved(request, found, form)):
        messages.success(request, f"The settings of {changed.name} are saved.")
        return redirect("cluster", changed.name)
    context = {
        "cluster": found,
        "form": form,
        "general": form.errors.get("", ""),
        "refused": bool(form.errors),
        "has_jobs": found.jobs.exists(),
        "has_nodes": bool(found.node_count),
    }
    return render(request, "dashboard/cluster/settings.html", context, status=422 if form.errors else 200)


@require_POST
@page
@for_administrators
def cluster_delete(request: SignedIn, name: str) -> HttpResponse:
    """Forget the cluster, which has neither nodes nor jobs."""
    found = machines.cluster(request.user, name)
    if not typed_name(request, found.name):
        return redirect("cluster_settings", name)
    try:
        node_services.delete_cluster(cluster=found, by=request.user)
    except Conflict as refused:
        messages.error(request, str(refused))
        return redirect("cluster_settings", name)
    messages.success(request, f"{name} is deleted.")
    return redirect("clusters")


def _saved(request: SignedIn, cluster: Cluster, form: ClusterForm) -> Cluster | None:
    fields = form.request()
    if form.errors:
        return None
    try:
        return node_services.update_cluster(cluster=cluster, by=request.user, **fields)
    except Invalid as refused:
        form.refuse(refused.errors)
        return None
