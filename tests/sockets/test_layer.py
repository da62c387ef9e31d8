"""The production channel layer against a real Redis that goes away and comes back."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from redis import Redis
from redis.exceptions import RedisError

from dashboard.sockets.layer import LiveLayer
from orchestrator.embedded.ports import require_free
from orchestrator.embedded.redis_server import find_server

pytestmark = pytest.mark.stack
WITHIN_S = 10.0


class Server:
    """A Redis that can be killed and started again at the same address."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, require_free(0)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Up, and answering."""
        arguments = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self.folder)]
        self.process = subprocess.Popen([find_server(), *arguments], stdout=subprocess.DEVNULL)
        with Redis(port=self.port) as redis:
            for _ in range(200):
                try:
                    redis.ping()
                    return
                except RedisError:
                    self.process.poll()
                    # The server says nothing when it is ready; asking is the only way.
                    asyncio.run(asyncio.sleep(0.02))
        raise AssertionError("Redis did not start")

    def kill(self) -> None:
        """As a crash would."""
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    found = Server(tmp_path)
    found.start()
    yield found
    found.kill()


class Taker:
    """A listener that keeps what it takes; `None` stands for what was missed."""

    def __init__(self) -> None:
        self.taken: asyncio.Queue[str | None] = asyncio.Queue()

    def take(self, text: str) -> None:
        """An event."""
        self.taken.put_nowait(text)

    def missed(self) -> None:
        """A gap."""
        self.taken.put_nowait(None)

    async def next(self) -> str | None:
        """What comes next."""
        return await asyncio.wait_for(self.taken.get(), WITHIN_S)


def subscriptions(server: Server) -> dict[str, int]:
    """How many connections listen to what, as Redis counts them."""
    with Redis(port=server.port, decode_responses=True) as redis:
        return dict(redis.pubsub_numsub(*redis.pubsub_channels()))


@pytest_asyncio.fixture
async def layer(server: Server) -> AsyncIterator[LiveLayer]:
    found = LiveLayer(hosts=[f"redis://127.0.0.1:{server.port}/0"])
    yield found
    await found.flush()
    found.close()


async def test_a_process_subscribes_to_a_group_once(server: Server, layer: LiveLayer) -> None:
    pages = [Taker() for _ in range(50)]
    for page in pages:
        await layer.join("job.1", page)
    await layer.join("job.2", pages[0])
    await asyncio.to_thread(layer.publish, {"job.1": "ä", "nobody": "n"})
    assert {await page.next() for page in pages} == {"ä"}
    assert await asyncio.to_thread(layer.heard, ["nobody", "job.2", "job.1"]) == ["job.2", "job.1"]
    assert await asyncio.to_thread(subscriptions, server) == {"asgi__group__job.1": 1, "asgi__group__job.2": 1}
    for page in pages[1:]:
        await layer.leave("job.1", page)
    await asyncio.to_thread(layer.publish, {"job.1": "b"})
    assert await pages[0].next() == "b"
    assert all(page.taken.empty() for page in pages)
    await layer.leave("job.1", pages[0])
    await layer.leave("job.1", pages[0])
    await asyncio.to_thread(layer.publish, {"job.1": "c", "job.2": "d"})
    assert await pages[0].next() == "d"
    assert await asyncio.to_thread(subscriptions, server) == {"asgi__group__job.2": 1}


async def test_after_redis_was_away_everybody_is_told(server: Server, layer: LiveLayer) -> None:
    pages = [Taker() for _ in range(2)]
    await layer.join("jobs", pages[0])
    await layer.join("job.1", pages[1])
    await asyncio.to_thread(layer.publish, {"jobs": "a"})
    assert await pages[0].next() == "a"
    server.kill()
    await asyncio.to_thread(server.start)
    for page in pages:
        assert await page.next() is None
    for _ in range(20):
        # The subscription is known to be renewed, the way of this message is one more connection.
        try:
            await asyncio.to_thread(layer.publish, {"jobs": "b"})
            break
        except RedisError:
            await asyncio.sleep(0.1)
    assert await pages[0].next() == "b"
