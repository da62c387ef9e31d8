"""The lease on the node: who writes it, who looks, and what the wall clock and a refusing Redis cannot do to it."""

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import redis

from tests.agent.plans import make_launch, make_plan
from tests.agent.replica.test_shim import Running
from tests.agent.stack import NODE_ID, free_port
from worker_agent.daemon.transfer.shipper import RedisChannel, refuses_everybody
from worker_agent.protocol.states import Cause
from worker_agent.replica import lease
from worker_agent.replica.lease import Lease, LeaseKeeper


class Clock:
    """Seconds since boot, moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 5000.0
        monkeypatch.setattr(lease, "since_boot_s", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "lease"


def test_it_runs_out_when_the_last_touch_is_too_long_ago_and_says_so_once(clock: Clock, file: Path) -> None:
    keeper, held = LeaseKeeper(file), Lease(str(file), 30.0)
    for _ in range(100):
        keeper.touch(clock.now)
        assert held.overdue_stop() is None
        clock.now += 1
    clock.now += 29
    assert held.overdue_stop() is None
    clock.now += 1.1
    stop = held.overdue_stop()
    assert stop is not None
    assert stop.cause is Cause.LEASE_LOST
    assert "could not reach the control plane for more than 30 s" in stop.reason
    clock.now += 60
    assert held.overdue_stop() is None


def test_a_process_that_begins_out_of_touch_has_only_what_is_left_of_the_lease(clock: Clock, file: Path) -> None:
    LeaseKeeper(file).touch(clock.now - 28)
    held = Lease(str(file), 30.0)
    assert held.overdue_stop() is None
    clock.now += 3
    assert held.overdue_stop() is not None


@pytest.mark.parametrize(
    "content",
    [b"", b'{"at":', b'{"at": 4990.0,"boot_id":"another boot"}', b"from the future"],
    ids=["nothing", "half a line", "another boot", "the future"],
)
def test_what_says_nothing_is_no_touch_and_the_begin_counts(clock: Clock, file: Path, content: bytes) -> None:
    file.write_bytes(content)
    if content == b"from the future":
        LeaseKeeper(file).touch(clock.now + 1000)
    held = Lease(str(file), 30.0)
    for _ in range(30):
        assert held.overdue_stop() is None
        clock.now += 1
    clock.now += 1
    assert held.overdue_stop() is not None


def test_without_a_lease_it_never_runs_out(clock: Clock, file: Path) -> None:
    LeaseKeeper(file).touch(clock.now)
    for held in (Lease(str(file), 0.0), Lease("", 30.0)):
        assert held.overdue_stop() is None
        clock.now += 100_000
        assert held.overdue_stop() is None


@pytest.mark.parametrize("hours", [-2, 2])
def test_the_wall_clock_changes_nothing(monkeypatch: pytest.MonkeyPatch, file: Path, hours: int) -> None:
    keeper, held = LeaseKeeper(file), Lease(str(file), 30.0)
    keeper.touch(lease.since_boot_s())
    assert held.overdue_stop() is None
    shifted = time.time() + hours * 3600
    monkeypatch.setattr(time, "time", lambda: shifted)
    monkeypatch.setattr(lease, "LOOK_EVERY_S", 0.0)
    assert held.overdue_stop() is None
    keeper.touch(lease.since_boot_s() + 1)
    assert held.overdue_stop() is None


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that takes connections and never says a word, as behind a cut cable."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_refused_connection_is_a_touch_and_silence_is_none(tmp_path: Path, silent_port: int) -> None:
    touched: dict[str, bytes] = {}
    for name, port in (("refused", free_port()), ("silent", silent_port)):
        file = tmp_path / name
        url = f"redis://127.0.0.1:{port}/0?socket_timeout=0.2"
        channel = RedisChannel(url, node_id=NODE_ID, lease=LeaseKeeper(file))
        with pytest.raises(redis.RedisError):
            channel.append(b"report")
        touched[name] = file.read_bytes()
    assert touched["refused"].startswith(b'{"at":')
    assert touched["silent"] == b""


@pytest.mark.parametrize(
    ("error", "is_touch"),
    [
        (redis.BusyLoadingError("Redis is loading the dataset in memory"), True),
        (redis.exceptions.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."), True),
        (redis.ResponseError("MISCONF Redis is configured to save RDB snapshots, but it cannot"), True),
        (redis.TimeoutError("Timeout reading from socket"), False),
        (redis.ConnectionError("the connection was lost"), False),
        (redis.AuthenticationError("WRONGPASS"), False),
        (redis.exceptions.NoPermissionError("this user has no permissions"), False),
        (redis.ReadOnlyError("You can't write against a read only replica."), False),
    ],
)
def test_which_answers_mean_that_nobody_is_served(error: redis.RedisError, is_touch: bool) -> None:
    assert refuses_everybody(error) is is_touch


def test_a_full_disk_keeps_no_touch_from_being_written(file: Path) -> None:
    keeper = LeaseKeeper(file)
    sizes = set()
    for at in (1.0, 99_999_999.25):
        keeper.touch(at)
        sizes.add(file.stat().st_size)
    assert len(sizes) == 1


def test_the_shim_begins_nothing_while_the_lease_is_over(tmp_path: Path) -> None:
    file = tmp_path / "lease"
    LeaseKeeper(file).touch(lease.since_boot_s() - 5)
    plan = msgspec.structs.replace(make_plan(tmp_path, make_launch(lease_s=1.5)), lease=str(file))
    end = Running(plan, "print('up', flush=True)").exit()
    assert (end.code, end.signal, end.cause) == (None, None, Cause.LEASE_LOST)
    assert end.message.endswith("It had not started yet.")


def test_the_shim_ends_a_process_whose_node_is_out_of_touch_and_no_other(tmp_path: Path) -> None:
    program = "import time; print('up', flush=True); time.sleep(60)"
    file = tmp_path / "lease"
    plan = msgspec.structs.replace(make_plan(tmp_path, make_launch(lease_s=1.5)), lease=str(file))
    in_touch = threading.Event()

    def keep() -> None:
        keeper = LeaseKeeper(file)
        while not in_touch.wait(0.2):
            keeper.touch(lease.since_boot_s())

    keeping = threading.Thread(target=keep)
    keeping.start()
    running = Running(plan, program)
    try:
        running.wait_for("up")
        time.sleep(2.5)  # longer than the lease
        assert running.process.poll() is None
        in_touch.set()
        end = running.exit()
    finally:
        in_touch.set()
        keeping.join()
        running.process.kill()
        running.process.wait()
    assert (end.signal, end.cause) == (15, Cause.LEASE_LOST)
    assert end.message.startswith("Its node could not reach the control plane for more than 1.5 s, its lease")
