"""Who may open a feed, and that an open one ends with the right to see it."""

import asyncio
from collections.abc import Iterable

import pytest
from channels.db import database_sync_to_async
from channels.layers import get_channel_layer
from django.contrib.sessions.models import Session
from django.db import connection
from django.test.utils import CaptureQueriesContext

from dashboard.sockets import feed, rights
from dashboard.sockets.routing import websocket_urlpatterns
from orchestrator import live
from orchestrator.models import Job, User
from tests.factories import make_job, make_node
from tests.sockets.conftest import Opener, page_at, session_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def addresses(transactional_db: None) -> dict[str, str]:
    """One address for every route that there is, by route name."""
    job, node = make_job(), make_node()
    return {
        "ws_jobs": "/ws/jobs/",
        "ws_job": f"/ws/jobs/{job.pk}/",
        "ws_job_attempt": f"/ws/jobs/{job.pk}/attempts/1/",
        "ws_node": f"/ws/nodes/{node.pk}/",
        "ws_machines": "/ws/machines/",
        "ws_nowhere": "/ws/elsewhere/",
    }


def test_every_route_is_walked(addresses: dict[str, str]) -> None:
    assert set(addresses) == {route.name for route in websocket_urlpatterns}


async def test_strangers_get_nothing_anywhere(addresses: dict[str, str], open_page: Opener) -> None:
    for name, path in addresses.items():
        for session in ("", "0" * 32):
            page = page_at(path, session=session)
            assert await page.connect()
            message = await page.receive_output(timeout=5)
            expected = rights.NO_SUCH_THING if name == "ws_nowhere" else rights.SIGN_IN_AGAIN
            assert (message["type"], message["code"]) == ("websocket.close", expected), path


async def test_people_get_a_snapshot_everywhere(addresses: dict[str, str], viewer: User, open_page: Opener) -> None:
    for name in ("ws_jobs", "ws_job", "ws_job_attempt", "ws_node", "ws_machines"):
        page = await open_page(addresses[name], viewer)
        assert (await page.frame())["type"] == "snapshot"


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("https://evil.example", "testserver"),
        ("http://testserver.evil.example", "testserver"),
        ("http://testserver:9999", "testserver"),
        ("http://127.0.0.1", "testserver"),
        ("null", "testserver"),
        ("", "testserver"),
        ("file://testserver", "testserver"),
        ("http://rebound.example", "rebound.example"),
        ("http://rebound.example:8000", "rebound.example:8000"),
    ],
)
async def test_foreign_origins_and_hosts_are_refused(
    addresses: dict[str, str], administrator: User, origin: str, host: str
) -> None:
    session = await session_of(administrator)
    for path in addresses.values():
        page = page_at(path, session=session, origin=origin, host=host)
        assert not await page.connect(), path


async def test_the_public_address_is_an_origin_of_ours(
    addresses: dict[str, str], viewer: User, settings, open_page: Opener
) -> None:
    settings.CSRF_TRUSTED_ORIGINS = ["https://yard.example.org"]
    page = await open_page("/ws/jobs/", viewer, origin="https://yard.example.org")
    assert (await page.frame())["type"] == "snapshot"


async def test_what_is_not_there_is_closed(viewer: User, open_page: Opener) -> None:
    for path in ("/ws/jobs/987654/", "/ws/jobs/99999999999999999999/", "/ws/nodes/0123456789ab/", "/ws/", "/"):
        page = await open_page(path, viewer)
        assert await page.close_code() == rights.NO_SUCH_THING, path


def _new_password(person: User) -> None:
    person.set_password("another-good-password")
    person.save()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda person: Session.objects.all().delete(), rights.SIGN_IN_AGAIN),
        (lambda person: User.objects.filter(pk=person.pk).update(is_active=False), rights.SIGN_IN_AGAIN),
        (_new_password, rights.SIGN_IN_AGAIN),
        (lambda person: Job.objects.all().delete(), rights.NO_SUCH_THING),
    ],
    ids=["signed out", "deactivated", "new password", "job deleted"],
)
async def test_a_feed_ends_with_the_right_to_see_it(
    viewer: User, open_page: Opener, monkeypatch, change, code: int
) -> None:
    monkeypatch.setattr(rights, "CHECK_EVERY_S", 0.02)
    job = await database_sync_to_async(make_job)()
    page = await open_page(f"/ws/jobs/{job.pk}/", viewer)
    assert (await page.frame())["type"] == "snapshot"
    assert await page.receive_nothing(timeout=0.1)
    await database_sync_to_async(change)(viewer)
    assert await page.close_code() == code


async def test_open_pages_are_looked_at_together(viewer: User, member: User, open_page: Opener, monkeypatch) -> None:
    """One thread for all of them, each session once, and each address of a session once."""
    rounds: list[tuple[int, int, int]] = []
    monkeypatch.setattr(rights, "CHECK_EVERY_S", 0.05)
    paths = ["/ws/jobs/"] * 5 + ["/ws/machines/"] * 3
    session, other = await session_of(viewer), await session_of(member)
    pages = [*(page_at(path, session=session) for path in paths), page_at("/ws/jobs/", session=other)]
    refused, check = rights._refused, rights._person
    for page in pages:
        assert await page.connect()
        await page.frame()

    def look(found: Iterable[rights.Guarded]) -> list[tuple[rights.Guarded, int]]:
        looked = tuple(found)
        with CaptureQueriesContext(connection) as queries, monkeypatch.context() as patch:
            checks = []
            patch.setattr(rights, "_person", lambda *asked: checks.append(asked) or check(*asked))
            codes = refused(looked)
        rounds.append((len(looked), len(checks), len(queries)))
        return codes

    monkeypatch.setattr(rights, "_refused", look)
    while not rounds:
        await asyncio.sleep(0.01)
    # Two sessions, a session and its person each.
    assert rounds[0] == (len(pages), 3, 4)
    await database_sync_to_async(Session.objects.filter(pk=session).delete)()
    for page in pages[:-1]:
        assert await page.close_code() == rights.SIGN_IN_AGAIN
    assert await pages[-1].receive_nothing(timeout=0.1)
    await pages[-1].leave()


async def test_a_renewed_connection_to_redis_asks_for_a_fresh_snapshot(viewer: User, open_page: Opener) -> None:
    page = await open_page("/ws/jobs/", viewer)
    await page.frame()
    for listener in get_channel_layer().groups[live.JOBS]:
        listener.missed()
    assert await page.close_code() == feed.MISSED_SOMETHING
