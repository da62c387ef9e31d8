"""The floor of `point_latency`: a 50 ms flush into Redis, and one server that forwards to sockets. Nothing is stored.

`python -m benchmarks.bare.push PORT REDIS_URL SECONDS`
"""

import asyncio
import contextlib
import json
import multiprocessing
import signal
import sys
import threading
import time
from collections import deque

import redis
import redis.asyncio
import websockets

CHANNEL = "bench:floor"
FLUSH_S = 0.05
POINT_EVERY_S = 0.05


def produce(redis_url: str, seconds: float) -> None:
    """Log points as a training loop would; a timed thread publishes what has gathered."""
    client = redis.Redis.from_url(redis_url)
    queue: deque[float] = deque()

    def flush() -> None:
        while True:
            time.sleep(FLUSH_S)
            times = [queue.popleft() for _ in range(len(queue))]
            if times:
                client.publish(CHANNEL, json.dumps(times))

    threading.Thread(target=flush, daemon=True).start()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        queue.append(time.time())
        time.sleep(POINT_EVERY_S)


async def serve(port: int, redis_url: str) -> None:
    """One subscription, every message to every socket."""
    viewers: set[websockets.ServerConnection] = set()

    async def join(socket: websockets.ServerConnection) -> None:
        viewers.add(socket)
        try:
            await socket.wait_closed()
        finally:
            viewers.discard(socket)

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)
    subscription = redis.asyncio.Redis.from_url(redis_url).pubsub()
    await subscription.subscribe(CHANNEL)
    async with websockets.serve(join, "127.0.0.1", port):
        async for message in subscription.listen():
            if message["type"] == "message":
                websockets.broadcast(viewers, message["data"].decode())


def main() -> None:
    """Producer in a process of its own, server in this one."""
    port, redis_url, seconds = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    producer = multiprocessing.Process(target=produce, args=(redis_url, seconds))
    producer.start()
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(serve(port, redis_url))
    producer.terminate()


if __name__ == "__main__":
    main()
