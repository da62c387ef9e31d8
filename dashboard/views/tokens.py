"""A person's API tokens: made here, shown once, revoked here."""

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from dashboard.requests import SignedIn
from dashboard.views.answers import page
from dashboard.views.once import forget, hand_over, received
from orchestrator.services import accounts
from orchestrator.services.errors import Invalid

FRESH = "api_token"


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def tokens(request: SignedIn) -> HttpResponse:
    """The list, and a new token by POST."""
    name, errors = "", {}
    if request.method == "POST":
        name = request.POST.get("name", "")
        try:
            token = accounts.create_api_token(user=request.user, name=name)
            return hand_over(request, redirect("tokens"), name=FRESH, value=token)
        except Invalid as refused:
            errors = {error.field: error.message for error in refused.errors}
    context = {
        "tokens": accounts.tokens_of(request.user),
        "fresh": received(request, name=FRESH),
        "name": name,
        "errors": errors,
        "general": errors.get("", ""),
    }
    answer = render(request, "dashboard/account/tokens.html", context, status=422 if errors else 200)
    return forget(answer, name=FRESH)


@require_POST
@page
def revoke(request: SignedIn, token_id: int) -> HttpResponse:
    """End one of one's own tokens."""
    accounts.revoke_api_token(user=request.user, token_id=token_id)
    messages.success(request, "The token is revoked. Programs that use it are refused from now on.")
    return redirect("tokens")
