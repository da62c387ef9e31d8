"""A check on the nodes, as a page of its own and as the part of the new-job page that is fetched until it is done."""

from datetime import UTC, datetime
from http import HTTPStatus

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from dashboard.requests import SignedIn
from dashboard.views.answers import page, wants_json
from orchestrator.services.errors import Conflict
from orchestrator.services.trials import preflights


@require_safe
@page
def preflight(request: SignedIn, preflight_id: int, template: str) -> HttpResponse:
    """The whole page, which loads itself again while nodes have still to answer, or its findings alone."""
    view = preflights.answers_to(preflight_id=preflight_id, by=request.user, now=datetime.now(UTC))
    return render(request, f"dashboard/preflight/{template}", {"check": view})


@require_POST
@page
def preflight_cancel(request: SignedIn, preflight_id: int) -> HttpResponse:
    """End it; then the form, which a browser without scripts has to go back to. A script gets nothing."""
    try:
        preflights.cancel(preflight_id=preflight_id, by=request.user, now=datetime.now(UTC))
    except Conflict as error:
        messages.error(request, str(error))
        return redirect("preflight", preflight_id)
    if wants_json(request):
        return HttpResponse(status=HTTPStatus.NO_CONTENT)
    messages.info(request, "The check is cancelled. Go back twice to return to the form.")
    return redirect("job_new")
