"""The shipper's thread: the connection to Redis, wake-ups, and the reports that are not records.

It is woken by the datagram socket (a writer has new bytes, or the agent has a report) and looks around every `POLL_S`
besides. Redis being away costs nothing but time: records wait in the spools, acknowledgements here, and of heartbeats
the latest is kept. After every new connection the agent says hello first.
"""

import contextlib
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import redis
import structlog
from redis.backoff import NoBackoff
from redis.retry import Retry

from worker_agent.daemon.core import ReplicaKey
from worker_agent.daemon.transfer.shipping_plan import Channel, ShippingPlan
from worker_agent.protocol.reports import REPORTS_KEY, Ack, Goodbye, Heartbeat, Hello, Probed, Report, acks_key
from worker_agent.replica.lease import LeaseKeeper, since_boot_s
from worker_agent.replica.spool import notify

POLL_S = 0.5
RETRY_S = 0.5
REPORTS_KEPT = 1000

log = structlog.get_logger("shipper")


class RedisChannel:
    """The reports stream and the acknowledgements. Every lost connection is an error, so that hello is said again.

    Whatever shows that this node is not cut off is written to the lease, with the time at which it was asked.
    """

    def __init__(self, redis_url: str, *, node_id: str, lease: LeaseKeeper) -> None:
        self._lease = lease
        self._acks_key = acks_key(node_id)
        self._redis: Any = redis.Redis.from_url(
            redis_url,
            socket_timeout=10,
            socket_connect_timeout=5,
            socket_keepalive=True,
            health_check_interval=10,
            retry=Retry(NoBackoff(), 0),
            redis_connect_func=self._connect,
        )
        self._is_open = False

    def _connect(self, connection: Any) -> None:
        """The pool renews a connection that was lost between two commands without a word: the first try is refused."""
        was_open, self._is_open = self._is_open, False
        if was_open:
            raise redis.ConnectionError("the connection was lost")
        connection.on_connect()
        self._is_open = True

    def append(self, envelope: bytes) -> bytes:
        """See `Channel`."""
        with self._in_touch():
            entry: bytes = self._redis.xadd(REPORTS_KEY, {b"e": envelope})
        return entry

    def is_waiting(self, entry: bytes) -> bool:
        """See `Channel`."""
        with self._in_touch():
            return bool(self._redis.xrange(REPORTS_KEY, entry, entry, count=1))

    def acks(self) -> dict[str, int]:
        """See `Channel`."""
        with self._in_touch():
            found: dict[bytes, bytes] = self._redis.hgetall(self._acks_key)
        return {field.decode(): int(value) for field, value in found.items() if value.isdigit()}

    @contextlib.contextmanager
    def _in_touch(self) -> Iterator[None]:
        asked_at = since_boot_s()
        try:
            yield
        except redis.RedisError as error:
            if refuses_everybody(error):
                self._touch(asked_at)
            raise
        self._touch(asked_at)

    def _touch(self, at: float) -> None:
        try:
            self._lease.touch(at)
        except OSError as error:
            log.warning("the lease could not be written", error=str(error))


def refuses_everybody(error: redis.RedisError) -> bool:
    """Whether Redis is there and takes nothing from anybody: it refuses connections, loads, or is full. Then nobody
    can have been launched in the place of what runs here; silence may mean that this node alone is cut off."""
    refused = isinstance(error.__cause__ or error.__context__, ConnectionRefusedError)
    full = isinstance(error, redis.exceptions.OutOfMemoryError) or str(error).startswith("MISCONF")
    return refused or full or isinstance(error, redis.exceptions.BusyLoadingError)


class Shipper:
    """The thread around `ShippingPlan`: connection, wake-ups, and the reports that are not records."""

    def __init__(self, plan: ShippingPlan, *, channel: Channel, notify_path: str, hello: Callable[[], Hello]) -> None:
        self._plan = plan
        self._channel = channel
        self._hello = hello
        self._notify_path = notify_path
        self._reports: deque[Ack | Probed | Goodbye] = deque(maxlen=REPORTS_KEPT)
        self._heartbeat: Heartbeat | None = None
        self._changes: deque[Callable[[], None]] = deque()
        self._drained: threading.Event | None = None
        self._closing = threading.Event()
        Path(notify_path).unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(notify_path)
        self._thread = threading.Thread(target=self._run, name="shipper", daemon=True)

    def start(self) -> None:
        """Begin to ship."""
        self._thread.start()

    def add(self, key: ReplicaKey, spool: Path) -> None:
        """Begin with a replica's streams."""
        self._changes.append(partial(self._plan.add, key, spool))
        self.wake()

    def finish(self, key: ReplicaKey) -> None:
        """The replica has ended: ship the rest of its streams."""
        self._changes.append(partial(self._plan.finish, key))
        self.wake()

    def drop(self, key: ReplicaKey) -> None:
        """End with a replica's streams."""
        self._changes.append(partial(self._plan.drop, key))

    def report(self, report: Ack | Probed | Goodbye) -> None:
        """Send a report; kept while Redis is away."""
        self._reports.append(report)
        self.wake()

    def send_heartbeat(self, heartbeat: Heartbeat) -> None:
        """Send this heartbeat; while Redis is away only the latest is kept."""
        self._heartbeat = heartbeat
        self.wake()

    def wake(self) -> None:
        """Look now."""
        notify(self._notify_path)

    def drain(self, *, timeout_s: float) -> bool:
        """Wait until everything in the spools has been handed to Redis."""
        self._drained = drained = threading.Event()
        self.wake()
        return drained.wait(timeout_s)

    def close(self) -> None:
        """End the thread and remove the socket."""
        self._closing.set()
        self.wake()
        self._thread.join(timeout=2.0)
        self._socket.close()
        Path(self._notify_path).unlink(missing_ok=True)

    def _run(self) -> None:
        is_connected = False
        while not self._closing.is_set():
            drained = self._drained
            try:
                if not is_connected:
                    self._send(self._hello())
                    log.info("connected to Redis")
                    is_connected = True
                is_done = self._step()
            except redis.RedisError as error:
                if is_connected:
                    log.warning("Redis is away, output waits on the disk", error=str(error))
                is_connected = False
                self._closing.wait(RETRY_S)
            except Exception:
                log.exception("shipping failed, trying again")
                self._closing.wait(RETRY_S)
            else:
                if is_done and drained is not None:
                    drained.set()
                self._sleep()

    def _step(self) -> bool:
        while self._changes:
            self._changes.popleft()()
        while self._reports:
            self._send(self._reports[0])
            self._reports.popleft()
        heartbeat, self._heartbeat = self._heartbeat, None
        if heartbeat is not None:
            self._send(heartbeat)
        return self._plan.step(self._channel, now=time.time(), clock=time.monotonic())

    def _send(self, report: Report) -> None:
        self._plan.send(self._channel, report, now=time.time())

    def _sleep(self) -> None:
        """Until somebody rings, or the poll; a burst of rings is one wake-up."""
        ready, _, _ = select.select([self._socket], [], [], POLL_S)
        if ready:
            with contextlib.suppress(BlockingIOError):
                while True:
                    self._socket.recv(16)
