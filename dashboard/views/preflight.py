"""A check on the nodes, as a page of its own and as the part of the new-job page that is fetched until it is done."""

from datetime import UTC, datetime

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from dashboard.views.answers import page
from orchestrator.services import preflights


@require_safe
@page
def preflight(request: HttpRequest, preflight_id: int) -> HttpResponse:
    """The whole page, which loads itself again while nodes have still to answer."""
    return _printed(request, preflight_id, "dashboard/preflight.html")


@require_safe
@page
def preflight_state(request: HttpRequest, preflight_id: int) -> HttpResponse:
    """Its findings alone."""
    return _printed(request, preflight_id, "dashboard/_preflight.html")


def _printed(request: HttpRequest, preflight_id: int, template: str) -> HttpResponse:
    view = preflights.look(preflight_id=preflight_id, by=request.user, now=datetime.now(UTC))
    return render(request, template, {"check": view})
