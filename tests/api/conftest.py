"""A program's end of REST: requests with a bearer token."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client

from orchestrator import enqueue
from orchestrator.models import User
from orchestrator.services import accounts

Caller = Callable[[User], "Program"]


class Program:
    """`program.get("/jobs")`: REST as one person, by token. No cookies are kept and CSRF is enforced."""

    def __init__(self, token: str) -> None:
        self.headers = {"Authorization": f"Bearer {token}"}
        self.client = Client(enforce_csrf_checks=True)

    def get(self, path: str, **query: Any) -> HttpResponse:
        """GET."""
        return self.client.get("/api/v1" + path, query, headers=self.headers)

    def post(self, path: str, body: Any = None) -> HttpResponse:
        """POST of JSON; text is sent as it stands."""
        data = body if isinstance(body, str) else json.dumps({} if body is None else body)
        return self.client.post("/api/v1" + path, data, content_type="application/json", headers=self.headers)

    def put(self, path: str, body: Any) -> HttpResponse:
        """PUT of JSON."""
        data = json.dumps(body)
        return self.client.put("/api/v1" + path, data, content_type="application/json", headers=self.headers)

    def delete(self, path: str) -> HttpResponse:
        """DELETE."""
        return self.client.delete("/api/v1" + path, headers=self.headers)


@pytest.fixture
def calls_as() -> Caller:
    """`calls_as(person).get("/jobs")`."""
    return lambda person: Program(accounts.create_api_token(user=person, name="tests"))


@pytest.fixture(autouse=True)
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The control tasks that were sent; there is no broker here."""
    names: list[str] = []
    monkeypatch.setattr(enqueue, "_ask_once", lambda: names.append(enqueue.DISPATCH))
    return names
