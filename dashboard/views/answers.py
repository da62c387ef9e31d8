"""What the refusals of queries and services become on a page: 404, 403, or a message and the way back."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from dashboard.requests import SignedIn
from orchestrator.queries.errors import NotFound
from orchestrator.services.errors import Conflict, Forbidden

P = ParamSpec("P")
View = Callable[Concatenate[SignedIn, P], HttpResponseBase]


def wants_json(request: HttpRequest) -> bool:
    """Whether a script of ours asks, and not a browser for a page."""
    return request.accepts("application/json") and not request.accepts("text/html")


def typed_name(request: HttpRequest, name: str) -> bool:
    """Whether the name was typed that an act which cannot be undone asks for; a message says so where it was not."""
    if request.POST.get("confirm") == name:
        return True
    messages.error(request, f"Nothing was done: type {name} to confirm.")
    return False


def for_administrators(view: View[P]) -> View[P]:
    """A view that raises `Forbidden` for everybody else."""

    @wraps(view)
    def answer(request: SignedIn, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        if not request.user.may_administer:
            raise Forbidden("This page is for administrators.")
        return view(request, *args, **kwargs)

    return answer


def page(view: View[P]) -> View[P]:
    """A view whose `NotFound` is the 404 page and whose `Forbidden` is the 403 page."""

    @wraps(view)
    def answer(request: SignedIn, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        try:
            return view(request, *args, **kwargs)
        except NotFound as error:
            raise Http404(str(error)) from error
        except Forbidden as error:
            raise PermissionDenied(str(error)) from error

    return answer


def action(act: Callable[..., object], *, back: str) -> View[...]:
    """A view that does it to what the address names, then leads back to the page of that, which says why when it could
    not be done."""

    @require_POST
    @page
    def view(request: SignedIn, /, **named: int) -> HttpResponseBase:
        try:
            act(**named, by=request.user)
        except Conflict as refused:
            messages.warning(request, str(refused))
        return redirect(back, *named.values())

    return view
