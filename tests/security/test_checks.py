"""System checks: which settings refuse a start and which warn."""

import pytest
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured

from dashboard import checks

GOOD = "kd83-kfU2_ls0aPq91-xxcvbQWERuiop-7shd"


def found(settings, **values: object) -> set[str]:
    for name, value in values.items():
        setattr(settings, name, value)
    return {message.id for message in run_checks(tags=[checks.TAG])}


def test_the_settings_of_this_run_are_sound() -> None:
    assert run_checks(tags=[checks.TAG]) == []


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("", {"trainyard.E001"}),
        ("change-me", {"trainyard.E002"}),
        ("CHANGEME", {"trainyard.E002"}),
        ("django-insecure-0123456789012345678901234567890123456789", {"trainyard.E002"}),
        ("x7", {"trainyard.W001"}),
        (GOOD, set()),
    ],
)
def test_secret_key(settings, key: str, expected: set[str]) -> None:
    assert found(settings, SECRET_KEY=key) == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://127.0.0.1:6379/0", set()),
        ("redis://localhost/0", set()),
        ("redis://[::1]:6379/0", set()),
        ("unix:///run/redis.sock", set()),
        ("redis://:a-password@8.8.8.8:6379/0", set()),
        ("redis://redis:6379/0", {"trainyard.W002"}),
        ("redis://10.1.2.3:6379/0", {"trainyard.W002"}),
        ("redis://8.8.8.8:6379/0", {"trainyard.E003"}),
    ],
)
def test_redis_without_password(settings, url: str, expected: set[str]) -> None:
    assert found(settings, REDIS_URL=url, AGENT_REDIS_URL=url) == expected


def test_agents_redis_is_checked_too(settings) -> None:
    assert found(settings, AGENT_REDIS_URL="redis://8.8.4.4:6379/0") == {"trainyard.E003"}


@pytest.mark.parametrize(
    ("url", "hosts", "secure", "expected"),
    [
        ("http://127.0.0.1:8000", ["127.0.0.1"], False, set()),
        ("https://yard.example.org", ["yard.example.org"], True, set()),
        ("https://yard.example.org", [".example.org"], True, set()),
        ("https://yard.example.org", ["127.0.0.1"], True, {"trainyard.E005"}),
        ("yard.example.org", ["yard.example.org"], True, {"trainyard.E004"}),
        ("ftp://yard.example.org", ["yard.example.org"], True, {"trainyard.E004"}),
        ("http://127.0.0.1:8000", ["*"], False, {"trainyard.W003"}),
        ("https://yard.example.org", ["yard.example.org"], False, {"trainyard.W004"}),
        ("http://127.0.0.1:8000", ["127.0.0.1"], True, {"trainyard.W005"}),
    ],
)
def test_addresses(settings, url: str, hosts: list[str], secure: bool, expected: set[str]) -> None:
    assert found(settings, PUBLIC_URL=url, ALLOWED_HOSTS=hosts, SESSION_COOKIE_SECURE=secure) == expected


def test_a_start_is_refused_on_errors_only(settings, caplog) -> None:
    settings.SECRET_KEY = "x7"
    checks.refuse_unsafe_start()
    assert "trainyard.W001" in caplog.text
    settings.SECRET_KEY = "change-me"
    with pytest.raises(ImproperlyConfigured, match=r"trainyard\.E002"):
        checks.refuse_unsafe_start()
