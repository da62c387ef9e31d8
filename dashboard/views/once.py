"""A secret that one page makes and the next page shows, once: it crosses the redirect in a short-lived signed cookie.

So a reload makes no second secret, and the server stores none: of API tokens and join tokens it keeps only digests.
"""

from django.conf import settings
from django.http import HttpResponse

from dashboard.requests import SignedIn

LIFE_S = 60
PREFIX = "once_"


def hand_over(request: SignedIn, response: HttpResponse, *, name: str, value: str) -> HttpResponse:
    """Give `value` to this person's next page."""
    response.set_signed_cookie(
        PREFIX + name,
        value,
        salt=_salt(request),
        max_age=LIFE_S,
        httponly=True,
        samesite="Strict",
        secure=settings.SESSION_COOKIE_SECURE,
    )
    return response


def received(request: SignedIn, *, name: str) -> str:
    """What the page before handed over, or "". Answer with `forget`, so that it is shown this once."""
    return str(request.get_signed_cookie(PREFIX + name, "", salt=_salt(request), max_age=LIFE_S))


def forget(response: HttpResponse, *, name: str) -> HttpResponse:
    """The same answer, ending the secret's way."""
    response.delete_cookie(PREFIX + name, samesite="Strict")
    return response


def _salt(request: SignedIn) -> str:
    return f"trainyard.once.{request.user.pk}"
