"""One's own password: changed by who knows the old one, or set through the link that an administrator gave."""

from axes.utils import reset
from django.contrib import messages
from django.contrib.auth import authenticate, update_session_auth_hash
from django.contrib.auth.tokens import default_token_generator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.http import urlsafe_base64_decode
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from dashboard.requests import SignedIn
from orchestrator.queries.rows import User
from orchestrator.services import accounts, people
from orchestrator.services.errors import Invalid

# Where the secret of a link waits while its page is open, so that it stands in no address for longer than a redirect.
KEPT = "password_link"


@never_cache
@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
def password(request: SignedIn) -> HttpResponse:
    """Change the password. This session stays, the person's others end. Wrong old ones count as failed sign-ins."""
    errors: dict[str, str] = {}
    if request.method == "POST":
        old = request.POST.get("old", "")
        if authenticate(request, username=request.user.username, password=old) is None:
            errors = {"old": "This is not your present password."}
        elif not (errors := _set(request.user, request)):
            update_session_auth_hash(request, request.user)
            messages.success(request, "Your password is changed. Your other sessions are signed out.")
            return redirect("password")
    context = {"errors": errors}
    return render(request, "dashboard/account/password.html", context, status=422 if errors else 200)


@never_cache
@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
def password_link(request: HttpRequest, key: str, token: str) -> HttpResponse:
    """Set a password through a link, which then counts no more; then sign in with it."""
    given = request.session.get(KEPT, "") if token == KEPT else token
    person, errors = accounts.active_person(_number(key)), dict[str, str]()
    if person is None or not default_token_generator.check_token(person, given):
        return render(request, "dashboard/account/link_used.html", status=410)
    if token != KEPT:
        request.session[KEPT] = token
        return redirect("password_link", key, KEPT)
    if request.method == "POST" and not (errors := _set(person, request)):
        del request.session[KEPT]
        reset(username=person.username)
        messages.success(request, "Your password is set. Sign in with it.")
        return redirect("sign_in")
    context = {"errors": errors, "person": person}
    return render(request, "dashboard/account/set_password.html", context, status=422 if errors else 200)


def _set(person: User, request: HttpRequest) -> dict[str, str]:
    """What is wrong with the new password, by field; nothing where it is set."""
    try:
        people.set_password(person=person, new=request.POST.get("new", ""), again=request.POST.get("again", ""))
    except Invalid as refused:
        return {error.field: error.message for error in refused.errors}
    return {}


def _number(key: str) -> int:
    try:
        return int(urlsafe_base64_decode(key))
    except ValueError:
        return 0
