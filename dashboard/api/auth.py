"""Who calls REST: a program by bearer token, or a page of ours by session (then with CSRF token on every write)."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponseBase
from ninja.errors import AuthenticationError, HttpError
from ninja.security import HttpBearer
from ninja.security.apikey import APIKeyCookie
from ninja.utils import check_csrf

from dashboard.api.problems import problem
from dashboard.requests import SignedIn
from orchestrator.queries.rows import User
from orchestrator.services.accounts import user_for_token
from orchestrator.services.errors import Forbidden


class Token(HttpBearer):
    """`Authorization: Bearer ty_…`. A token that does not count is refused, whatever session comes along."""

    def __call__(self, request: HttpRequest) -> User | None:
        """The person, or None when no Authorization header was sent."""
        if "Authorization" not in request.headers:
            return None
        user: User | None = super().__call__(request)
        if user is None:
            raise AuthenticationError
        return user

    def authenticate(self, request: HttpRequest, token: str) -> User | None:
        """The person whose token this is; also `request.user` from here on."""
        user = user_for_token(token.strip())
        if user is not None:
            request.user = user
        return user


class Session(APIKeyCookie):
    """The cookie of a signed-in browser."""

    param_name = settings.SESSION_COOKIE_NAME

    def __call__(self, request: HttpRequest) -> User | None:
        """The person, or None. Anonymous requests are told to sign in before anything is said about CSRF."""
        if not request.user.is_authenticated:
            return None
        if check_csrf(request) is not None:
            raise HttpError(403, "The CSRF token is missing or wrong: send it as X-CSRFToken.")
        return request.user

    def authenticate(self, request: HttpRequest, key: str | None) -> None:
        """Not used: `__call__` decides from the session itself."""


def administrator(request: SignedIn) -> User:
    """The person who calls, if an administrator; raises `Forbidden`."""
    if not request.user.may_administer:
        raise Forbidden("This is for administrators.")
    return request.user


def may_read_documents(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Guards the OpenAPI document and its page: for whoever may call REST. A browser is led to the sign-in."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            signed_in = request.user.is_authenticated or Token()(request) is not None
        except AuthenticationError:
            signed_in = False
        if signed_in:
            return view(request, *args, **kwargs)
        if "text/html" in request.headers.get("Accept", ""):
            return redirect_to_login(request.get_full_path())
        return problem(401, "Sign in first, or send a bearer token.")

    return guarded
