"""What every answer tells the browser, what a session cookie looks like, and hosts that are not ours."""

from collections.abc import Callable

import pytest
from django.conf import settings
from django.test import Client

from dashboard.config import middleware
from orchestrator.models import User
from tests.factories import PASSWORD, make_cluster, make_job, make_node

PAGES = ["/", "/jobs/", "/jobs/new/", "/clusters/", "/nodes/", "/people/", "/account/tokens/", "/account/password/"]
OUR_POLICY_TOO = ["/jobs/987654/", "/no/such/page/", "/healthz", "/api/v1/jobs", "/api/v1/docs", "/agent/v1/join"]


@pytest.fixture
def everywhere(administrator: User, client_of: Callable[[User], Client]) -> Client:
    """Somebody who sees every page."""
    return client_of(administrator)


def test_the_policy_of_our_pages_is_the_settled_one() -> None:
    assert middleware.PAGE_CSP == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'"
    )
    for looser in middleware.LOOSER_CSP.values():
        assert "'unsafe-inline'" not in looser.split("script-src")[1].split(";")[0]
        assert "*" not in looser
        assert "http" not in looser


def test_every_page_carries_it(everywhere: Client) -> None:
    job, node, cluster = make_job(), make_node(), make_cluster()
    pages = [*PAGES, f"/jobs/{job.pk}/", f"/nodes/{node.pk}/", f"/clusters/{cluster.name}/"]
    for path in [*pages, *OUR_POLICY_TOO]:
        answer = everywhere.get(path, follow=True)
        assert answer.headers["Content-Security-Policy"] == middleware.PAGE_CSP, path
        _check_common(answer, path)
    assert Client().get("/sign-in/").headers["Content-Security-Policy"] == middleware.PAGE_CSP


def test_pages_hold_nothing_that_the_policy_forbids(everywhere: Client) -> None:
    job, node, cluster = make_job(), make_node(), make_cluster()
    pages = [*PAGES, f"/jobs/{job.pk}/", f"/nodes/{node.pk}/", f"/clusters/{cluster.name}/"]
    for path in pages:
        answer = everywhere.get(path, follow=True)
        text = answer.content.decode()
        assert answer.status_code == 200, path
        for forbidden in (' style="', "<style", " onclick=", " onload=", " onsubmit=", "javascript:", "<base"):
            assert forbidden not in text, (path, forbidden)
        for piece in text.split("<script")[1:]:
            head, _, body = piece.partition(">")
            inert = "application/json" in head
            assert inert or (" src=" in head and not body.split("</script")[0].strip()), (path, head)


@pytest.mark.parametrize("path", ["/admin/", "/admin/orchestrator/user/", "/admin/orchestrator/cluster/"])
def test_the_administration_has_a_policy_of_its_own(everywhere: Client, path: str) -> None:
    answer = everywhere.get(path)
    assert answer.status_code == 200
    assert answer.headers["Content-Security-Policy"] == middleware.ADMIN_CSP
    assert {"/admin/": middleware.ADMIN_CSP} == middleware.LOOSER_CSP
    assert middleware.ADMIN_CSP.startswith("default-src 'none'; script-src 'self' 'unsafe-eval'; style-src 'self' ")
    assert "frame-ancestors 'none'" in middleware.ADMIN_CSP
    _check_common(answer, path)


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "testserver:80:80", "", "a b", "169.254.169.254"]
)
def test_foreign_hosts_are_refused(everywhere: Client, host: str) -> None:
    for path in ("/", "/sign-in/", "/api/v1/jobs", "/healthz", "/agent/v1/join"):
        assert everywhere.get(path, headers={"Host": host}).status_code == 400, (host, path)
    forwarded = everywhere.get("/jobs/", headers={"X-Forwarded-Host": "evil.example"})
    assert forwarded.status_code == 200
    assert b"evil.example" not in forwarded.content


def test_the_session_cookie_is_kept_from_scripts(member: User) -> None:
    browser = Client()
    browser.get("/sign-in/")
    answer = browser.post("/sign-in/", {"username": "mel", "password": PASSWORD})
    assert answer.status_code == 302, answer.content
    cookie = answer.cookies[settings.SESSION_COOKIE_NAME]
    assert cookie["httponly"]
    assert cookie["samesite"] == "Lax"
    assert int(cookie["max-age"]) == 7 * 24 * 3600


def test_forms_need_the_csrf_token(member: User, client_of: Callable[[User], Client]) -> None:
    job = make_job(owner=member)
    browser = Client(enforce_csrf_checks=True)
    browser.cookies = client_of(member).cookies
    paths = [f"/jobs/{job.pk}/stop/", f"/jobs/{job.pk}/retry/", "/jobs/new/", "/jobs/new/preview/", "/account/tokens/"]
    paths += ["/people/", "/people/1/role/", "/account/password/", "/password/a/b/", "/clusters/a/settings/"]
    for path in [*paths, "/sign-out/", "/sign-in/", "/clusters/", "/nodes/0123456789ab/cordon/"]:
        assert browser.post(path).status_code == 403, path
    job.refresh_from_db()
    assert job.status == "submitted"


def test_guessing_passwords_is_slow(member: User) -> None:
    for _ in range(settings.AXES_FAILURE_LIMIT):
        assert Client().post("/sign-in/", {"username": "mel", "password": "wrong"}).status_code in (401, 429)
    locked = Client().post("/sign-in/", {"username": "mel", "password": PASSWORD})
    assert locked.status_code == 429
    assert settings.SESSION_COOKIE_NAME not in locked.cookies
    forged = Client().post(
        "/sign-in/", {"username": "mel", "password": PASSWORD}, headers={"X-Forwarded-For": "9.9.9.9"}
    )
    assert forged.status_code == 429, "the address is the peer's, not what a header claims"
    elsewhere = Client(REMOTE_ADDR="10.9.8.7").post("/sign-in/", {"username": "mel", "password": PASSWORD})
    assert elsewhere.status_code == 302, "nobody is locked out from afar"


def test_the_sign_in_leads_to_this_server_only(member: User) -> None:
    for target in ("https://evil.example/", "//evil.example/", "javascript:alert(1)"):
        answer = Client().post("/sign-in/", {"username": "mel", "password": PASSWORD, "next": target})
        assert answer.headers["Location"] == "/", target


def test_readiness_names_what_is_missing(db: None, settings) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    answer = Client().get("/readyz")
    assert (answer.status_code, answer.json()) == (503, {"status": "not ready", "database": "ok", "redis": "no answer"})
    assert Client().get("/healthz").json() == {"status": "ok"}
    assert Client().post("/healthz").status_code == 405


def _check_common(answer, path: str) -> None:
    for name, value in {
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
    }.items():
        assert answer.headers[name] == value, (path, name)
    assert "Access-Control-Allow-Origin" not in answer.headers
    assert "private" in answer.headers["Cache-Control"] or "no-store" in answer.headers["Cache-Control"], path
