"""Django system checks of the installation's settings; ids `trainyard.E…` refuse a start, `trainyard.W…` warn.

Run by `manage.py check`, by every management command, and by `asgi.py` before the first request.
"""

import ipaddress
import logging
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register, run_checks
from django.core.exceptions import ImproperlyConfigured
from django.http.request import validate_host

TAG = "trainyard"
# Keys that stand in documentation, examples or images; whoever uses one has published his sessions.
KNOWN_KEYS = frozenset(
    {"change-me", "changeme", "secret", "secret-key", "insecure", "default", "trainyard", "password"}
)
SHORT_KEY_CHARS = 32

logger = logging.getLogger(__name__)


def refuse_unsafe_start() -> None:
    """Raises `ImproperlyConfigured` when a check of ours found an error; warnings go to the log."""
    found = run_checks(tags=[TAG])
    errors = [message for message in found if message.is_serious()]
    for message in found:
        if not message.is_serious():
            logger.warning("%s: %s %s", message.id, message.msg, message.hint or "")
    if errors:
        raise ImproperlyConfigured("\n".join(f"{error.id}: {error.msg} {error.hint or ''}".strip() for error in errors))


@register(TAG)
def check_secret_key(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Sessions and forms are only as safe as the key that signs them."""
    key = _secret_key()
    if not key:
        return [Error("TRAINYARD_SECRET_KEY is not set.", hint="Give it 50 random characters.", id="trainyard.E001")]
    if key.lower() in KNOWN_KEYS or key.startswith("django-insecure-"):
        return [Error("TRAINYARD_SECRET_KEY is a known default.", hint="Make a random one.", id="trainyard.E002")]
    if len(key) < SHORT_KEY_CHARS:
        text = f"TRAINYARD_SECRET_KEY is shorter than {SHORT_KEY_CHARS} characters."
        return [Warning(text, hint="Make a longer random one.", id="trainyard.W001")]
    return []


@register(TAG)
def check_redis(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """A Redis without password that others can reach gives commands and reports to everybody."""
    found: list[CheckMessage] = []
    named = {"TRAINYARD_REDIS_URL": settings.REDIS_URL, "TRAINYARD_AGENT_REDIS_URL": settings.AGENT_REDIS_URL}
    for url in dict.fromkeys(named.values()):
        parts, names = urlsplit(url), [name for name, each in named.items() if each == url]
        if parts.scheme == "unix" or parts.password or _is_loopback(parts.hostname or ""):
            continue
        text = f"{' and '.join(names)} names a Redis without a password at {parts.hostname}."
        hint = "Set a password (requirepass or an ACL user) and put it into the address."
        if _is_public(parts.hostname or ""):
            found.append(Error(text, hint=hint, id="trainyard.E003"))
        else:
            found.append(Warning(text, hint=hint, id="trainyard.W002"))
    return found


@register(TAG)
def check_addresses(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """The address that people and agents are told has to be one that the server answers to."""
    parts = urlsplit(settings.PUBLIC_URL)
    found: list[CheckMessage] = []
    if parts.scheme not in ("http", "https") or not parts.hostname:
        text = f"TRAINYARD_PUBLIC_URL is not an http(s) address: {settings.PUBLIC_URL}"
        return [Error(text, hint="Such as https://trainyard.example.org", id="trainyard.E004")]
    if not validate_host(parts.hostname, settings.ALLOWED_HOSTS):
        text = f"TRAINYARD_ALLOWED_HOSTS does not contain {parts.hostname}, the host of TRAINYARD_PUBLIC_URL."
        found.append(Error(text, hint="Add it: every request to that address would be refused.", id="trainyard.E005"))
    if "*" in settings.ALLOWED_HOSTS:
        text = "TRAINYARD_ALLOWED_HOSTS allows every host name."
        found.append(
            Warning(text, hint="Name the hosts: it is the defence against DNS rebinding.", id="trainyard.W003")
        )
    if parts.scheme == "https" and not settings.SESSION_COOKIE_SECURE:
        text = "TRAINYARD_PUBLIC_URL is https but TRAINYARD_SECURE_COOKIES is off."
        found.append(Warning(text, hint="Turn it on, so that cookies never travel in the clear.", id="trainyard.W004"))
    if parts.scheme == "http" and settings.SESSION_COOKIE_SECURE:
        text = "TRAINYARD_SECURE_COOKIES is on but TRAINYARD_PUBLIC_URL is http: nobody could sign in."
        found.append(Warning(text, hint="Use https, or turn it off.", id="trainyard.W005"))
    return found


def _secret_key() -> str:
    try:
        return str(settings.SECRET_KEY)
    except ImproperlyConfigured:
        return ""


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in ("localhost", "")


def _is_public(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_global
    except ValueError:
        return False
