"""Every HTTP route there is, walked by people who must not pass. A new route is closed, or this file says why not."""

from collections.abc import Callable, Iterator

import pytest
from django.http import HttpResponse
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from dashboard.config import middleware
from orchestrator.models import User
from tests.factories import make_job

# A link to set a password opens nothing without its secret.
OPEN_PATHS = {"/sign-in/", "/password/1/1/", "/healthz", "/readyz"}
# Stand-ins for each kind of argument in a route.
ARGUMENTS = {
    "job_id": "1",
    "artifact_id": "1",
    "token_id": "1",
    "replica_id": "1",
    "node_id": "0123456789ab",
    "name": "local",
    "action": "cordon",
    "sha256": "0" * 64,
    "object_id": "1",
    "app_label": "orchestrator",
    "content_type_id": "1",
    "url": "x/",
    "path": "x",
}
METHODS = ("get", "post", "put", "patch", "delete")


def routes() -> Iterator[tuple[str, URLPattern]]:
    """(address, pattern) of every route."""
    yield from _walk(get_resolver(), "/")


def _walk(resolver: URLResolver, prefix: str) -> Iterator[tuple[str, URLPattern]]:
    for entry in resolver.url_patterns:
        address = prefix + _filled(entry)
        if isinstance(entry, URLResolver):
            yield from _walk(entry, address)
        else:
            yield address, entry


def _filled(entry: URLPattern | URLResolver) -> str:
    text = str(entry.pattern)
    for name in entry.pattern.converters:
        kind = next(found for found in text.split("<")[1:] if found.split(">")[0].split(":")[-1] == name).split(">")[0]
        text = text.replace(f"<{kind}>", ARGUMENTS.get(name, "1"))
    return text.removeprefix("^").removesuffix("$").replace(r"\Z", "")


ROUTES = sorted({address for address, _ in routes() if "(?P" not in address})


def test_the_walk_sees_every_kind_of_route() -> None:
    for one in (
        "/",
        "/jobs/",
        "/jobs/1/stop/",
        "/api/v1/jobs",
        "/api/v1/docs",
        "/agent/v1/join",
        "/admin/",
        "/healthz",
    ):
        assert one in ROUTES
    assert len(ROUTES) > 60


def test_the_exemptions_are_these() -> None:
    assert {"sign_in", "password_link", "healthz", "readyz"} == middleware.OPEN_VIEWS
    assert middleware.OPEN_PREFIXES == ("/agent/v1/", "/api/v1/")


@pytest.mark.django_db
@pytest.mark.parametrize("address", ROUTES)
def test_strangers_get_nothing(address: str) -> None:
    if address in OPEN_PATHS:
        return
    browser = Client(enforce_csrf_checks=True)
    for method in METHODS:
        answer = getattr(browser, method)(address)
        assert _refused(answer), f"{method} {address}: {answer.status_code}"
        assert "sessionid" not in answer.cookies


@pytest.mark.django_db
def test_a_wrong_token_opens_nothing() -> None:
    for address in ROUTES:
        if address in OPEN_PATHS:
            continue
        answer = Client().get(address, headers={"Authorization": "Bearer ty_wrong"})
        assert _refused(answer), f"{address}: {answer.status_code}"


def test_open_pages_say_nothing_about_the_installation(db: None) -> None:
    make_job(name="secret-project")
    for address in OPEN_PATHS:
        answer = Client().get(address)
        assert answer.status_code in (200, 410, 503)
        assert b"secret-project" not in answer.content


def _refused(answer: HttpResponse) -> bool:
    """Sent to the sign-in, told to authenticate or that this is no way to ask; never carried out."""
    if answer.status_code in (301, 302):
        return str(answer.headers["Location"]).startswith("/sign-in/")
    return answer.status_code in (401, 403, 404, 405, 422) and not answer.cookies


@pytest.mark.parametrize("who", ["viewer", "member"])
def test_the_administration_is_for_administrators(
    who: str, request: pytest.FixtureRequest, client_of: Callable[[User], Client], administrator: User
) -> None:
    browser = client_of(request.getfixturevalue(who))
    addresses = [address for address in ROUTES if address.startswith("/admin/")]
    assert addresses
    for address in addresses:
        assert browser.get(address).status_code == 403, address
        assert browser.post(address).status_code == 403, address
    assert client_of(administrator).get("/admin/").status_code == 200


def test_pages_answer_404_for_unknown_addresses(viewer: User, client_of: Callable[[User], Client]) -> None:
    assert Client().get("/no/such/page/").status_code == 404
    assert client_of(viewer).get("/no/such/page/").status_code == 404


def test_scripts_get_401_instead_of_the_form(db: None) -> None:
    answer = Client().get("/jobs/1/state/", headers={"Sec-Fetch-Mode": "cors"})
    assert answer.status_code == 401
    assert answer.json()["detail"]


def test_the_sign_in_leads_back(db: None) -> None:
    answer = Client().get("/jobs/?status=failed")
    assert answer.headers["Location"] == "/sign-in/?next=/jobs/%3Fstatus%3Dfailed"
