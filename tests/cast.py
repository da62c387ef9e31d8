"""Fixtures of every test: a named cast of people, their browsers, and in-memory stand-ins for what unit tests lack."""

from collections.abc import Callable, Iterator

import pytest
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from django.test import Client, override_settings

from orchestrator.models import User, UserRole
from orchestrator.services.intake import reports
from orchestrator.services.intake.load import load
from tests.environment import ON_POSTGRES
from tests.factories import make_user

IN_MEMORY = {"default": {"BACKEND": "tests.layer.MemoryLayer"}}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The second run, on PostgreSQL, is for what touches the database; the rest would be the same again."""
    if not ON_POSTGRES:
        return
    chosen = [item for item in items if "db" in item.fixturenames or item.get_closest_marker("django_db")]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
    items[:] = chosen


@pytest.fixture(autouse=True, scope="session")
def _unit_settings() -> Iterator[None]:
    """Channels without Redis; passwords and static files that cost no time."""
    with override_settings(
        CHANNEL_LAYERS=IN_MEMORY,
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
        # Each test client would list every static file anew.
        WHITENOISE_AUTOREFRESH=True,
    ):
        yield


@pytest.fixture(autouse=True)
def _fresh_memory() -> None:
    """Tests roll back, so ids come again."""
    reports.forget()
    load.forget()


@pytest.fixture
def viewer(db: None) -> User:
    """May look."""
    return make_user("vera", role=UserRole.VIEWER)


@pytest.fixture
def member(db: None) -> User:
    """May run jobs; owns what the tests create."""
    return make_user("mel", role=UserRole.MEMBER)


@pytest.fixture
def teammate(db: None) -> User:
    """A second member, who owns nothing."""
    return make_user("tom", role=UserRole.MEMBER)


@pytest.fixture
def administrator(db: None) -> User:
    """May register machines and people."""
    return make_user("ada", role=UserRole.ADMINISTRATOR)


@pytest.fixture
def client_of() -> Callable[[User], Client]:
    """`client_of(person)`: a browser in which that person is signed in. (The sign-in has its own tests.)"""

    def browser(person: User) -> Client:
        session = SessionStore()
        session[SESSION_KEY] = str(person.pk)
        session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
        session[HASH_SESSION_KEY] = person.get_session_auth_hash()
        session.create()
        client = Client()
        client.cookies[settings.SESSION_COOKIE_NAME] = session.session_key
        return client

    return browser
