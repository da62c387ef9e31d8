"""What holds for every HTTP answer: nobody passes without signing in, and the browser is told what a page may do.

Deny by default: a new route is closed until its name stands in `OPEN_VIEWS`, where a test reads it back.
"""

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.utils.cache import patch_cache_control

from dashboard.static_files import STATIC_FILES

# Routes that answer before anybody has signed in.
OPEN_VIEWS = frozenset({"sign_in", "password_link", "healthz", "readyz"})
# Folders that check by themselves who calls: agents by signature, REST by token or session (401 instead of a page).
OPEN_PREFIXES = ("/agent/v1/", "/api/v1/")

PAGE_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'"
)
# Unfold's pages run Alpine, which evaluates its attributes, and print their colours as a style element.
ADMIN_CSP = (
    "default-src 'none'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
LOOSER_CSP = {"/admin/": ADMIN_CSP}

GetResponse = Callable[[HttpRequest], HttpResponse]


class HeadersMiddleware:
    """Content-Security-Policy, and no shared caching of what a signed-in person sees."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Add the headers that the answer does not carry yet."""
        response = self.get_response(request)
        response.headers.setdefault("Content-Security-Policy", policy_for(request.path))
        response.headers.setdefault(
            "Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()"
        )
        response.headers.setdefault("Cross-Origin-Resource-Policy", "same-origin")
        # A page of another version learns from the answers to its scripts that it is one.
        response.headers.setdefault("Trainyard-Version", STATIC_FILES.manifest_hash)
        if not response.has_header("Cache-Control"):
            patch_cache_control(response, private=True, no_cache=True)
        return response


class SignInRequiredMiddleware:
    """Refuses anonymous requests to every route that is not named above, and the admin to all but administrators."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Pass on; the decision needs the resolved route and so is made in `process_view`."""
        return self.get_response(request)

    def process_view(
        self, request: HttpRequest, view: Callable[..., HttpResponseBase], args: list[Any], kwargs: dict[str, Any]
    ) -> HttpResponseBase | None:
        """None lets the request through."""
        match = request.resolver_match
        if match is not None and (match.view_name in OPEN_VIEWS or request.path.startswith(OPEN_PREFIXES)):
            return None
        if not request.user.is_authenticated:
            return _ask_to_sign_in(request)
        if match is not None and match.app_name == "admin" and not getattr(request.user, "may_administer", False):
            raise PermissionDenied("The administration is for administrators.")
        return None


def policy_for(path: str) -> str:
    """The content security policy of the page at `path`."""
    return next((policy for prefix, policy in LOOSER_CSP.items() if path.startswith(prefix)), PAGE_CSP)


def client_address(request: HttpRequest) -> str:
    """Whom failed sign-ins are counted against: the peer that the server saw (it trusts only its own proxies)."""
    return str(request.META.get("REMOTE_ADDR", ""))


def _ask_to_sign_in(request: HttpRequest) -> HttpResponseBase:
    """A page leads to the sign-in; a script's request gets 401, so that it never takes the form for an answer."""
    by_script = request.headers.get("Sec-Fetch-Mode", "navigate") != "navigate"
    if by_script or "text/html" not in request.headers.get("Accept", "text/html, */*"):
        return JsonResponse({"detail": "Sign in first.", "errors": []}, status=401)
    came_from = request.get_full_path() if request.method in ("GET", "HEAD") else ""
    return redirect_to_login(came_from or "/", settings.LOGIN_URL)
