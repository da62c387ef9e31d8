"""Signing in and out, the lockout in words, and API tokens that are shown once."""

import re

import pytest
from django.test import Client, override_settings

from orchestrator.models import ApiToken, User, digest_of
from tests.factories import PASSWORD

TOKEN = re.compile(r"ty_[A-Za-z0-9_-]{40,}")


def sign_in(client: Client, name: str, password: str, **more: str):
    return client.post("/sign-in/", {"username": name, "password": password, **more})


def test_the_page_is_open_to_strangers(client: Client, db: None):
    answer = client.get("/sign-in/")
    assert answer.status_code == 200
    assert "no-store" in answer["Cache-Control"]


def test_name_and_password_lead_to_where_one_wanted(client: Client, member: User):
    answer = sign_in(client, "mel", PASSWORD, next="/clusters/")
    assert (answer.status_code, answer["Location"]) == (302, "/clusters/")


@pytest.mark.parametrize("away", ["https://elsewhere.example/", "//elsewhere.example/", "javascript:alert(1)"])
def test_nobody_is_led_away(client: Client, member: User, away: str):
    assert sign_in(client, "mel", PASSWORD, next=away)["Location"] == "/"


def test_a_wrong_password_is_said_in_words_and_the_name_stays(client: Client, member: User):
    answer = sign_in(client, "mel", "wrong")
    text = answer.content.decode()
    assert answer.status_code == 401
    assert "do not match" in text
    assert 'value="mel"' in text
    assert 'aria-invalid="true"' in text
    assert "wrong" not in re.sub(r"<svg.*?</svg>", "", text, flags=re.S)


def test_a_name_is_shown_as_text(client: Client, db: None):
    assert "<script>x" not in sign_in(client, "<script>x", "wrong").content.decode()


def test_a_switched_off_account_reads_like_a_wrong_password(client: Client, member: User):
    User.objects.filter(pk=member.pk).update(is_active=False)
    assert "do not match" in sign_in(client, "mel", PASSWORD).content.decode()


@override_settings(AXES_FAILURE_LIMIT=3)
def test_too_many_failures_close_the_door_for_a_while(client: Client, member: User):
    for _ in range(3):
        answer = sign_in(client, "mel", "wrong")
    assert answer.status_code == 429
    answer = sign_in(client, "mel", PASSWORD)
    text = answer.content.decode()
    assert answer.status_code == 429
    assert "Sign-in is closed for a while" in text
    assert "Try again in 15 minutes" in text
    assert "_auth_user_id" not in client.session


def test_signing_out_is_a_post(client_of, member: User):
    person = client_of(member)
    assert person.get("/sign-out/").status_code == 405
    assert person.post("/sign-out/")["Location"] == "/sign-in/"
    assert person.get("/clusters/")["Location"] == "/sign-in/?next=/clusters/"


def test_a_token_is_shown_once_and_kept_as_a_digest(client_of, viewer: User):
    person = client_of(viewer)
    made = person.post("/account/tokens/", {"name": "nightly"})
    assert made.status_code == 302
    first = person.get("/account/tokens/")
    token = TOKEN.search(first.content.decode())
    assert token is not None
    assert ApiToken.objects.get().digest == digest_of(token[0])
    assert "no-store" in first["Cache-Control"]
    second = person.get("/account/tokens/").content.decode()
    assert TOKEN.search(second) is None
    assert "nightly" in second


def test_the_cookie_that_carries_a_token_is_of_no_use_to_another_person(client_of, viewer: User, member: User):
    maker, other = client_of(viewer), client_of(member)
    maker.post("/account/tokens/", {"name": "nightly"})
    cookie = maker.cookies["once_api_token"]
    assert (cookie["httponly"], cookie["samesite"]) == (True, "Strict")
    other.cookies["once_api_token"] = cookie.value
    assert TOKEN.search(other.get("/account/tokens/").content.decode()) is None


@pytest.mark.parametrize(("name", "words"), [("", "Give the token a name"), ("x" * 101, "at most 100")])
def test_a_bad_name_is_answered_at_the_field(client_of, member: User, name: str, words: str):
    answer = client_of(member).post("/account/tokens/", {"name": name})
    text = answer.content.decode()
    assert answer.status_code == 422
    assert words in text
    assert f'value="{name}"' in text
    assert not ApiToken.objects.exists()


def test_token_names_are_text(client_of, member: User):
    person = client_of(member)
    person.post("/account/tokens/", {"name": "<script>x</script>"})
    assert "<script>x" not in person.get("/account/tokens/").content.decode()


def test_one_revokes_one_s_own_tokens_only(client_of, member: User, teammate: User):
    client_of(member).post("/account/tokens/", {"name": "mine"})
    token = ApiToken.objects.get()
    address = f"/account/tokens/{token.pk}/revoke/"
    assert client_of(teammate).post(address).status_code == 404
    assert client_of(member).get(address).status_code == 405
    assert client_of(member).post(address).status_code == 302
    assert not ApiToken.objects.exists()


def test_strangers_have_no_tokens(client: Client, db: None):
    assert client.get("/account/tokens/")["Location"].startswith("/sign-in/")
    assert client.post("/account/tokens/", {"name": "x"})["Location"].startswith("/sign-in/")
