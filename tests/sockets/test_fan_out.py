"""How events reach many pages: without a thread, without waiting for the slow, and within bounds."""

import asyncio

import pytest
from asgiref.sync import SyncToAsync
from channels.layers import get_channel_layer

from dashboard.sockets import feed
from orchestrator import live
from orchestrator.models import User
from tests.sockets.conftest import Opener, Page, page_at, session_of

pytestmark = pytest.mark.django_db(transaction=True)


def publish(number: int) -> None:
    """One event for the list of jobs."""
    get_channel_layer().publish({live.JOBS: live.frame([{"kind": "number", "number": number}])})


async def numbers(page: Page, count: int) -> list[int]:
    """Of the next `count` events."""
    found: list[int] = []
    while len(found) < count:
        found += [event["number"] for event in (await page.frame())["events"]]
    return found


async def test_an_event_reaches_every_page_without_a_thread(viewer: User, open_page: Opener, monkeypatch) -> None:
    pages = [await open_page("/ws/jobs/", viewer) for _ in range(20)]
    for page in pages:
        await page.frame()
    hops: list[object] = []
    whole = SyncToAsync.__call__

    async def counted(self: SyncToAsync, *args: object, **options: object) -> object:
        hops.append(self.func)
        return await whole(self, *args, **options)

    monkeypatch.setattr(SyncToAsync, "__call__", counted)
    for number in range(30):
        publish(number)
    for page in pages:
        assert await numbers(page, 30) == list(range(30))
    assert hops == []


async def slow_page(viewer: User) -> Page:
    """A page that takes its snapshot and one event, then nothing more, not even a closing frame."""
    page = page_at("/ws/jobs/", session=await session_of(viewer))
    page._output_queue = asyncio.Queue(1)
    assert await page.connect()
    await page.frame()
    publish(0)
    await asyncio.sleep(0.05)
    return page


async def test_who_cannot_keep_up_is_dropped_and_keeps_nobody_waiting(
    viewer: User, open_page: Opener, monkeypatch
) -> None:
    monkeypatch.setattr(feed, "OUTGOING_MESSAGES", 10)
    monkeypatch.setattr(feed, "CLOSE_WITHIN_S", 0.05)
    slow = await slow_page(viewer)
    quick = await open_page("/ws/jobs/", viewer)
    await quick.frame()
    for number in range(1, 30):
        publish(number)
        assert await numbers(quick, 1) == [number]
    await slow.wait(timeout=5)
    assert len(get_channel_layer().groups[live.JOBS]) == 1


async def test_who_was_dropped_reads_why(viewer: User, monkeypatch) -> None:
    monkeypatch.setattr(feed, "OUTGOING_MESSAGES", 3)
    slow = await slow_page(viewer)
    for number in range(1, 6):
        publish(number)
    assert await numbers(slow, 1) == [0]
    assert await slow.close_code() == feed.TOO_SLOW
    await slow.wait(timeout=5)


async def test_what_waits_for_a_page_is_bounded_in_size(viewer: User, monkeypatch) -> None:
    monkeypatch.setattr(feed, "OUTGOING_CHARS", 1_000)
    monkeypatch.setattr(feed, "CLOSE_WITHIN_S", 0.05)
    slow = await slow_page(viewer)
    (listener,) = get_channel_layer().groups[live.JOBS]
    text = "x" * 400
    for waiting in (0, 1, 2, 0):
        listener.take(text)
        await asyncio.sleep(0)
        assert len(listener._waiting) == waiting
    await slow.wait(timeout=5)


async def test_one_text_of_any_size_is_delivered(viewer: User, open_page: Opener, monkeypatch) -> None:
    monkeypatch.setattr(feed, "OUTGOING_CHARS", 10)
    page = await open_page("/ws/jobs/", viewer)
    await page.frame()
    for number in range(3):
        publish(number)
        assert await numbers(page, 1) == [number]


async def test_a_page_that_went_away_while_events_come_leaves_its_group(viewer: User) -> None:
    page = page_at("/ws/jobs/", session=await session_of(viewer))
    assert await page.connect()
    await page.frame()
    (listener,) = get_channel_layer().groups[live.JOBS]

    async def gone(message: feed.Message) -> None:
        raise OSError("the connection is closed")

    listener._send = gone
    publish(0)
    await page.wait(timeout=5)
    assert not get_channel_layer().groups[live.JOBS]
