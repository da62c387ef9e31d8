"""The requests that views and REST operations get: nobody reaches them who is not signed in, or sends a token."""

from django.http import HttpRequest

from orchestrator.queries.rows import User


class SignedIn(HttpRequest):
    """A request whose person is known (`dashboard/config/middleware.py`, `dashboard/api/auth.py`)."""

    user: User
