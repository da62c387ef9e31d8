"""The requests that views and REST operations get: nobody reaches them who is not signed in, or sends a token."""

from django.http import HttpRequest, QueryDict

from orchestrator.queries.rows import User


class SignedIn(HttpRequest):
    """A request whose person is known (`dashboard/config/middleware.py`, `dashboard/api/auth.py`)."""

    user: User


def chosen(asked: QueryDict) -> list[int]:
    """The ids of `jobs=1,2` or `jobs=1&jobs=2`; what is no id is passed over."""
    words = [word.strip() for given in asked.getlist("jobs") for word in given.split(",")]
    return [int(word) for word in words if word.isascii() and word.isdecimal() and len(word) < 19]
