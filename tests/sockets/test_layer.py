"""The production channel layer against a real Redis that goes away and comes back."""

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import RedisError

from dashboard.sockets.layer import GAP, GapAwareChannelLayer
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


async def test_after_redis_was_away_everybody_is_told(server: Server) -> None:
    layer = GapAwareChannelLayer(hosts=[f"redis://127.0.0.1:{server.port}/0"])
    channels = [await layer.new_channel() for _ in range(2)]
    await layer.group_add("jobs", channels[0])
    await layer.group_send("jobs", {"type": "live.events", "text": "a"})
    assert await asyncio.wait_for(layer.receive(channels[0]), WITHIN_S) == {"type": "live.events", "text": "a"}
    server.kill()
    await asyncio.to_thread(server.start)
    for channel in channels:
        assert await asyncio.wait_for(layer.receive(channel), WITHIN_S) == GAP
    for _ in range(20):
        # The subscription is known to be renewed, the way of this message is one more connection.
        try:
            await layer.group_send("jobs", {"type": "live.events", "text": "b"})
            break
        except RedisError:
            await asyncio.sleep(0.1)
    assert await asyncio.wait_for(layer.receive(channels[0]), WITHIN_S) == {"type": "live.events", "text": "b"}
    await layer.flush()


async def test_what_a_process_without_a_loop_publishes_arrives(server: Server) -> None:
    layer = GapAwareChannelLayer(hosts=[f"redis://127.0.0.1:{server.port}/0"])
    channel = await layer.new_channel()
    await layer.group_add("jobs", channel)
    message = {"type": "live.events", "text": "c"}
    await asyncio.to_thread(layer.publish, {"jobs": message, "nobody": message})
    assert await asyncio.wait_for(layer.receive(channel), WITHIN_S) == message
    await layer.flush()
    layer.close()
