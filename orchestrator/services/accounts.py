"""People's ways in that are not a sign-in form: API tokens, the session behind an open socket, the first administrator.

Called by REST, sockets, the token page and `manage.py up`. Tokens are shown once; only their digest is kept.
"""

import secrets
from datetime import datetime, timedelta
from types import SimpleNamespace

from django.contrib.auth import get_user
from django.contrib.auth.password_validation import validate_password
from django.contrib.sessions.backends.db import SessionStore
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.utils import timezone

from orchestrator.models import ApiToken, User, UserRole, digest_of
from orchestrator.queries.errors import NotFound
from orchestrator.services.errors import FieldError, Invalid

TOKEN_PREFIX = "ty_"
TOKENS_PER_PERSON = 50
NAME_LIMIT = ApiToken._meta.get_field("name").max_length or 0
# `last_used_at` answers "is it still in use?", so a minute is exact enough, and reading stays reading.
USE_NOTED_EVERY = timedelta(minutes=1)


def create_api_token(*, user: User, name: str) -> str:
    """A new bearer token of `user`, returned this once."""
    name = name.strip()
    if not name:
        raise Invalid([FieldError("name", "Give the token a name, so that you know later what uses it.")])
    if not name.isprintable():
        raise Invalid([FieldError("name", "Use printable characters only.")])
    if len(name) > NAME_LIMIT:
        raise Invalid([FieldError("name", f"Use at most {NAME_LIMIT} characters.")])
    if user.api_tokens.count() >= TOKENS_PER_PERSON:
        raise Invalid([FieldError("", f"You have {TOKENS_PER_PERSON} tokens already. Revoke one that is not used.")])
    token = TOKEN_PREFIX + secrets.token_urlsafe(32)
    ApiToken.objects.create(user=user, name=name, digest=digest_of(token))
    return token


def tokens_of(user: User) -> QuerySet[ApiToken]:
    """The tokens of a person, newest first."""
    return ApiToken.objects.filter(user=user).order_by("-id")


def revoke_api_token(*, user: User, token_id: int) -> None:
    """End one of the person's own tokens at once."""
    deleted, _ = ApiToken.objects.filter(user=user, pk=token_id).delete()
    if not deleted:
        raise NotFound("There is no such token.")


def user_for_token(token: str, *, now: datetime | None = None) -> User | None:
    """The active person whose token this is, or None."""
    if not token.startswith(TOKEN_PREFIX):
        return None
    row = ApiToken.objects.select_related("user").filter(digest=digest_of(token), user__is_active=True).first()
    if row is None:
        return None
    now = now or timezone.now()
    if row.last_used_at is None or row.last_used_at < now - USE_NOTED_EVERY:
        # Of many requests in one moment one writes.
        ApiToken.objects.filter(pk=row.pk, last_used_at=row.last_used_at).update(last_used_at=now)
    return row.user


def user_for_session(session_key: str) -> User | None:
    """The active person whom a session still stands for: None once signed out, expired, deactivated or re-keyed.

    Read from the database each time, so that an open socket can ask again.
    """
    user = get_user(SimpleNamespace(session=SessionStore(session_key)))  # type: ignore[arg-type]  # all it reads
    return user if isinstance(user, User) and user.is_active else None


def active_person(person_id: int) -> User | None:
    """The person, unless there is none or the person is deactivated."""
    return User.objects.filter(pk=person_id, is_active=True).first()


def ensure_administrator(*, username: str, password: str) -> tuple[User, bool]:
    """The administrator of that name, made with `password` if there is none; True when it was made now.

    Somebody who exists is left alone: neither password nor role is changed behind their back.
    """
    found = User.objects.filter(username=username).first()
    if found is not None:
        return found, False
    try:
        validate_password(password)
    except ValidationError as error:
        raise Invalid([FieldError("password", message) for message in error.messages]) from error
    return User.objects.create_user(username=username, password=password, role=UserRole.ADMINISTRATOR), True
