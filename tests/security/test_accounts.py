"""API tokens, the person behind a session, the first administrator."""

from datetime import timedelta

import pytest
from django.utils import timezone

from orchestrator.models import ApiToken, User, UserRole
from orchestrator.queries.errors import NotFound
from orchestrator.services import accounts
from orchestrator.services.errors import Invalid

PASSWORD = "correct-horse-battery"


def test_a_token_is_its_persons_and_only_its_digest_is_kept(member: User) -> None:
    token = accounts.create_api_token(user=member, name=" laptop ")
    assert token.startswith("ty_")
    assert accounts.user_for_token(token) == member
    row = ApiToken.objects.get()
    assert row.name == "laptop"
    assert token not in repr(row.__dict__)


@pytest.mark.parametrize("token", ["", "ty_", "ty_wrong", "Bearer x", "x" * 5000, "ty_\0"])
def test_other_tokens_are_nobodys(member: User, token: str) -> None:
    accounts.create_api_token(user=member, name="laptop")
    assert accounts.user_for_token(token) is None


@pytest.mark.parametrize("name", ["", " ", "lap\0top", "x" * 101])
def test_a_token_needs_a_name_that_can_be_kept(member: User, name: str) -> None:
    with pytest.raises(Invalid):
        accounts.create_api_token(user=member, name=name)


def test_tokens_end_with_revocation_and_with_the_account(member: User, teammate: User) -> None:
    token = accounts.create_api_token(user=member, name="laptop")
    row = ApiToken.objects.get()
    with pytest.raises(NotFound):
        accounts.revoke_api_token(user=teammate, token_id=row.pk)
    User.objects.filter(pk=member.pk).update(is_active=False)
    assert accounts.user_for_token(token) is None
    User.objects.filter(pk=member.pk).update(is_active=True)
    assert accounts.user_for_token(token) == member
    accounts.revoke_api_token(user=member, token_id=row.pk)
    assert accounts.user_for_token(token) is None
    assert list(accounts.tokens_of(member)) == []


def test_use_is_noted_once_a_minute(member: User) -> None:
    token = accounts.create_api_token(user=member, name="laptop")
    start = timezone.now()
    noted = []
    for seconds in (0, 30, 61):
        accounts.user_for_token(token, now=start + timedelta(seconds=seconds))
        noted.append((ApiToken.objects.get().last_used_at - start).total_seconds())
    assert noted == [0, 0, 61]


@pytest.mark.parametrize("name", ["", "   ", "x" * 101])
def test_a_token_needs_a_name(member: User, name: str) -> None:
    with pytest.raises(Invalid) as refused:
        accounts.create_api_token(user=member, name=name)
    assert refused.value.errors[0].field == "name"


def test_tokens_are_counted(member: User, monkeypatch) -> None:
    monkeypatch.setattr(accounts, "TOKENS_PER_PERSON", 2)
    for name in ("a", "b"):
        accounts.create_api_token(user=member, name=name)
    with pytest.raises(Invalid, match="Revoke one"):
        accounts.create_api_token(user=member, name="c")


def test_a_session_stands_for_its_person_until_it_ends(member: User, client_of) -> None:
    browser = client_of(member)
    key = browser.session.session_key
    assert accounts.user_for_session(key) == member
    User.objects.filter(pk=member.pk).update(is_active=False)
    assert accounts.user_for_session(key) is None
    User.objects.filter(pk=member.pk).update(is_active=True)
    assert accounts.user_for_session(key) == member
    browser.logout()
    assert accounts.user_for_session(key) is None


def test_a_changed_password_ends_sessions(member: User, client_of) -> None:
    key = client_of(member).session.session_key
    member.set_password("another-good-password")
    member.save()
    assert accounts.user_for_session(key) is None


@pytest.mark.django_db
@pytest.mark.parametrize("key", ["", "nothing", "0" * 32, "../../etc"])
def test_other_keys_stand_for_nobody(key: str) -> None:
    assert accounts.user_for_session(key) is None


@pytest.mark.django_db
def test_the_first_administrator_is_made_once() -> None:
    user, made = accounts.ensure_administrator(username="root", password=PASSWORD)
    assert made
    assert user.role == UserRole.ADMINISTRATOR
    assert user.is_staff
    assert user.check_password(PASSWORD)
    again, made = accounts.ensure_administrator(username="root", password="something-else-entirely")
    assert not made
    assert again.check_password(PASSWORD)


@pytest.mark.django_db
@pytest.mark.parametrize("password", ["", "short", "1234567890123", "password123"])
def test_the_first_administrator_gets_a_good_password(password: str) -> None:
    with pytest.raises(Invalid):
        accounts.ensure_administrator(username="root", password=password)
    assert not User.objects.exists()
