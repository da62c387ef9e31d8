"""People and their roles, one's own password, and the link that sets one."""

import re
from html import unescape

import pytest
from django.conf import settings
from django.test import Client

from orchestrator.models import ApiToken, Event, User
from orchestrator.services import accounts
from tests.factories import PASSWORD, make_user
from tests.pages.html import html_of

NEW = "another-horse-42"
LINK = re.compile(r"http://[^<\s]+(/password/[^<\s]+/)")
NOBODY = {"username": "", "email": "", "role": "member"}


@pytest.fixture
def ada(administrator: User, client_of) -> Client:
    return client_of(administrator)


def text_of(answer) -> str:
    return unescape(html_of(answer))


def add(client: Client, **fields: str):
    return client.post("/people/", NOBODY | fields, follow=True)


def link_in(answer) -> str:
    found = LINK.search(text_of(answer))
    assert found
    return found[1]


def opened(link: str) -> tuple[Client, str]:
    """A stranger's browser behind the link, and where its page stands."""
    stranger = Client()
    answer = stranger.get(link)
    assert answer.status_code == 302
    return stranger, answer["Location"]


@pytest.mark.parametrize("role", ["viewer", "member"])
def test_people_are_for_administrators(request, client_of, role: str, administrator: User):
    person = client_of(request.getfixturevalue(role))
    assert "/people/" not in person.get("/clusters/").content.decode()
    for address in ("/people/", f"/people/{administrator.pk}/"):
        assert person.get(address).status_code == 403
    for action in ("role", "deactivate", "activate", "password", "nothing"):
        assert person.post(f"/people/{administrator.pk}/{action}/", {"role": "viewer"}).status_code == 403
    assert person.post("/people/", NOBODY | {"username": "new"}).status_code == 403
    assert User.objects.filter(username="new").count() == 0


def test_strangers_are_sent_to_the_sign_in(client: Client, member: User):
    for address in ("/people/", f"/people/{member.pk}/", "/account/password/"):
        assert client.get(address)["Location"].startswith("/sign-in/")


def test_the_list_is_paged_and_searched(ada: Client, django_assert_max_num_queries):
    for number in range(60):
        make_user(f"p-{number:02}")
    with django_assert_max_num_queries(12):
        first = text_of(ada.get("/people/"))
    assert "1\u201350 of 61" in first
    assert "p-59" not in first
    assert "p-59" in text_of(ada.get("/people/?page=2"))
    found = text_of(ada.get("/people/?q=P-07"))
    assert "p-07" in found
    assert "p-08" not in found
    assert "Nobody matches" in text_of(ada.get("/people/?q=%00"))


def test_somebody_new_sets_a_password_by_the_link_and_signs_in(ada: Client, administrator: User):
    page = add(ada, username="nora", email="nora@example.org", role="viewer")
    nora = User.objects.get(username="nora")
    assert (nora.role, nora.email, nora.has_usable_password()) == ("viewer", "nora@example.org", False)
    link = link_in(page)
    assert "no-store" in page["Cache-Control"]
    assert not LINK.search(text_of(ada.get(f"/people/{nora.pk}/"))), "shown once"
    browser, place = opened(link)
    assert link.split("/")[3] not in place, "the secret stays out of the page's address"
    assert "nora" in text_of(browser.get(place))
    for new, again, words in (("short", "short", "too short"), (NEW, "other-horse-42", "differ")):
        refused = browser.post(place, {"new": new, "again": again})
        assert (refused.status_code, words in text_of(refused)) == (422, True)
    assert browser.post(place, {"new": NEW, "again": NEW})["Location"] == "/sign-in/"
    assert browser.post("/sign-in/", {"username": "nora", "password": NEW}).status_code == 302
    for used in (link, place):
        assert Client().get(used).status_code == 410
    events = list(Event.objects.order_by("pk").values_list("kind", "actor__username"))
    assert events == [("person_added", "ada"), ("person_password_link", "ada"), ("person_password", "nora")]
    assert not any(secret in text for secret in (NEW, link) for text in Event.objects.values_list("text", flat=True))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "cannot be blank"),
        ({"username": "with space"}, "valid username"),
        ({"username": "ada"}, "already exists"),
        ({"username": "new", "email": "nowhere"}, "valid email"),
        ({"username": "new", "role": "king"}, "not a valid choice"),
        ({"username": "x" * 151}, "at most 150"),
    ],
)
def test_what_is_wrong_stands_at_its_field(ada: Client, fields: dict[str, str], words: str):
    answer = add(ada, **fields)
    assert answer.status_code == 422
    assert words in text_of(answer)
    assert User.objects.count() == 1


def test_links_of_others_or_for_the_deactivated_open_nothing(ada: Client, member: User):
    link = link_in(ada.post(f"/people/{member.pk}/password/", follow=True))
    key, token = link.split("/")[2:4]
    for bad in (
        f"/password/{key}/nothing/",
        f"/password/AAAA/{token}/",
        f"/password/!/{token}/",
        f"/password/{key}/password_link/",
    ):
        answer = Client().get(bad)
        assert answer.status_code == 410, bad
        assert settings.SESSION_COOKIE_NAME not in answer.cookies, "strangers fill no table"
    ada.post(f"/people/{member.pk}/deactivate/")
    assert Client().get(link).status_code == 410
    assert "activate the person first" in text_of(ada.post(f"/people/{member.pk}/password/", follow=True))


def test_a_link_ends_a_lockout_and_other_sessions(ada: Client, member: User, client_of):
    before = client_of(member)
    for _ in range(settings.AXES_FAILURE_LIMIT):
        Client().post("/sign-in/", {"username": "mel", "password": "wrong"})
    browser, place = opened(link_in(ada.post(f"/people/{member.pk}/password/", follow=True)))
    assert before.get("/jobs/").status_code == 200, "until it is used, everything stays"
    browser.post(place, {"new": NEW, "again": NEW})
    assert before.get("/jobs/").status_code == 302
    assert browser.post("/sign-in/", {"username": "mel", "password": NEW}).status_code == 302


def test_a_role_changes_with_its_trace(ada: Client, administrator: User, member: User, client_of):
    assert "is now viewer" in text_of(ada.post(f"/people/{member.pk}/role/", {"role": "viewer"}, follow=True))
    assert client_of(User.objects.get(pk=member.pk)).get("/jobs/new/").status_code == 403
    event = Event.objects.get()
    assert (event.kind, event.actor, event.text) == (
        "person_role",
        administrator,
        "mel was made a viewer, before a member.",
    )
    assert "Choose one of" in text_of(ada.post(f"/people/{member.pk}/role/", {"role": "king"}, follow=True))


def test_nobody_gives_up_the_own_role_by_mistake(ada: Client, administrator: User):
    make_user("second", role="administrator")
    own = f"/people/{administrator.pk}/role/"
    assert "your own role" in text_of(ada.post(own, {"role": "viewer"}, follow=True))
    administrator.refresh_from_db()
    assert administrator.may_administer
    assert ada.post(own, {"role": "viewer", "confirm": "ada"})["Location"] == "/"
    assert ada.get("/people/").status_code == 403


@pytest.mark.parametrize(("action", "sent"), [("role", {"role": "member", "confirm": "ada"}), ("deactivate", {})])
def test_the_last_administrator_stays(ada: Client, administrator: User, action: str, sent: dict[str, str]):
    make_user("gone", role="administrator")
    User.objects.filter(username="gone").update(is_active=False)
    answer = ada.post(f"/people/{administrator.pk}/{action}/", sent, follow=True)
    assert "last active administrator" in text_of(ada.get(f"/people/{administrator.pk}/")) or "last active" in text_of(
        answer
    )
    administrator.refresh_from_db()
    assert (administrator.role, administrator.is_active) == ("administrator", True)
    assert not Event.objects.exists()


def test_deactivating_closes_every_door_at_once(ada: Client, member: User, client_of):
    browser, token = client_of(member), accounts.create_api_token(user=member, name="laptop")
    bearer = {"Authorization": f"Bearer {token}"}
    assert Client().get("/api/v1/jobs", headers=bearer).status_code == 200
    ada.post(f"/people/{member.pk}/deactivate/")
    assert Client().get("/api/v1/jobs", headers=bearer).status_code == 401
    assert browser.get("/jobs/").status_code == 302
    assert accounts.user_for_session(browser.cookies[settings.SESSION_COOKIE_NAME].value) is None, "and its sockets"
    assert Client().post("/sign-in/", {"username": "mel", "password": PASSWORD}).status_code == 401
    assert "Deactivated" in text_of(ada.get("/people/"))
    ada.post(f"/people/{member.pk}/activate/")
    assert Client().get("/api/v1/jobs", headers=bearer).status_code == 200
    assert list(Event.objects.order_by("pk").values_list("kind", flat=True)) == [
        "person_deactivated",
        "person_activated",
    ]


def test_ones_own_password(member: User, client_of):
    here, elsewhere = client_of(member), client_of(member)
    for sent, field, words in (
        ({"old": "wrong", "new": NEW, "again": NEW}, "old", "not your present password"),
        ({"old": PASSWORD, "new": "1234567890", "again": "1234567890"}, "new", "numeric"),
        ({"old": PASSWORD, "new": NEW, "again": "x"}, "again", "differ"),
    ):
        refused = here.post("/account/password/", sent)
        assert refused.status_code == 422
        assert re.search(rf'id="f-{field}-e">[^<]*{words}', text_of(refused)), text_of(refused)
        assert PASSWORD not in text_of(refused)
    assert here.post("/account/password/", {"old": PASSWORD, "new": NEW, "again": NEW}).status_code == 302
    assert here.get("/jobs/").status_code == 200
    assert elsewhere.get("/jobs/").status_code == 302
    member.refresh_from_db()
    assert member.check_password(NEW)
    assert Event.objects.get().text == "mel set a new password."


def test_guessing_the_present_password_is_slow(member: User, client_of):
    browser = client_of(member)
    sent = {"old": "wrong", "new": NEW, "again": NEW}
    answers = [browser.post("/account/password/", sent).status_code for _ in range(settings.AXES_FAILURE_LIMIT)]
    assert answers[-1] == 429
    assert browser.post("/account/password/", sent | {"old": PASSWORD}).status_code == 429
    member.refresh_from_db()
    assert member.check_password(PASSWORD)


def test_a_person_with_tokens_is_counted_once(ada: Client, member: User):
    for name in "abc":
        ApiToken.objects.create(user=member, name=name, digest=name)
    assert re.search(r'data-k="API tokens">3<', text_of(ada.get("/people/")))
