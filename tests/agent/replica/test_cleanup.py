"""Nothing is left behind, and what is left all the same is named: real processes, groups, ports, a full disk."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.agent.plans import make_launch, make_plan, make_spec
from tests.agent.replica.test_shim import DRIVER, Running
from tests.waiting import wait_until
from worker_agent.daemon.core import ReplicaKey
from worker_agent.daemon.leftovers import REPEATED_S, Leftovers
from worker_agent.machine import cgroup, gpu_memory, oom
from worker_agent.machine.processes import identify
from worker_agent.protocol.codec import decode_record, encode_plan
from worker_agent.protocol.plan import Plan
from worker_agent.protocol.records import Gap, Leftover, LeftoverKind, Points
from worker_agent.protocol.states import Cause, DeviceKind
from worker_agent.replica.cleanup import end_orphans
from worker_agent.replica.folder import ShimState, read_shim_state
from worker_agent.replica.leftovers import (
    TrackedLeftover,
    is_still_there,
    read_leftovers,
    resources_held,
    surviving,
    write_leftovers,
)
from worker_agent.replica.spool import Reader
from worker_agent.trainer.emit import Emitter, SpoolSink

WITHOUT_GROUP = "from worker_agent.machine import cgroup\ncgroup.own_folder = lambda: None\n"
# A daemon as the textbook has it, which also ignores SIGTERM; it says its pid.
DAEMON = """
import os, signal, time
if os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        print("daemon", os.getpid(), flush=True)
        os.closerange(0, 3)
        time.sleep(600)
    os._exit(0)
os.wait()
"""
PASSES_ITS_PORT_ON = """
import array, os, socket, sys
listening = socket.socket()
listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listening.bind(("127.0.0.1", {port}))
listening.listen()
line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
line.connect({path!r})
socket.send_fds(line, [b"x"], [listening.fileno()])
line.recv(1)
"""
# Each line waits until the one before has been taken, and a moment, in which the shim stores it as far as it can.
WRITES_12_MB = """
import array, fcntl, termios, time
waiting = array.array("i", [1])
for _ in range(15):
    print("x" * 799_999, flush=True)
    waiting[0] = 1
    while waiting[0]:
        fcntl.ioctl(1, termios.FIONREAD, waiting)
    time.sleep(0.03)
open("done", "w").close()
"""
GROUPED = pytest.mark.skipif(
    cgroup.own_folder() is None or not os.access(cgroup.own_folder() or "", os.W_OK),
    reason="this machine has no cgroup v2 that may be written to",
)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A replica's folder; whatever a failed test left of it is ended."""
    yield tmp_path
    state = read_shim_state(tmp_path)
    if state is not None:
        end_orphans(tmp_path, make_launch(), state)


def start(plan: Plan, program: str, *, driver: str = DRIVER, before: list[str] | None = None) -> Running:
    running = Running.__new__(Running)
    running.plan = plan
    Path(plan.entry).write_text(program)
    path = Path(plan.folder) / "plan.json"
    path.write_bytes(encode_plan(plan))
    running.process = subprocess.Popen(
        [*(before or []), sys.executable, "-c", driver, str(path)], start_new_session=True
    )
    return running


def daemon_of(running: Running) -> int:
    running.wait_for("daemon")
    return int(running.text().split()[1])


@pytest.mark.parametrize("driver", [pytest.param(DRIVER, marks=GROUPED), WITHOUT_GROUP + DRIVER])
def test_a_daemon_that_ignores_sigterm_is_gone_and_so_it_is_said(folder: Path, driver: str) -> None:
    running = start(make_plan(folder), DAEMON + "time.sleep(0.3)", driver=driver)
    daemon = daemon_of(running)
    end = running.exit()
    assert (end.cause, end.leftovers) == (Cause.COMPLETED, [])
    assert identify(daemon) is None
    state = read_shim_state(folder)
    assert state is not None
    assert bool(state.group) == (driver is DRIVER)
    assert not state.group or not Path(state.group).exists()
    assert read_leftovers(folder) is None


@pytest.mark.parametrize("driver", [pytest.param(DRIVER, marks=GROUPED), WITHOUT_GROUP + DRIVER])
def test_what_a_killed_shim_leaves_is_found_in_whatever_session(folder: Path, driver: str) -> None:
    running = start(make_plan(folder), DAEMON + "time.sleep(600)", driver=driver)
    daemon = daemon_of(running)
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    running.process.kill()
    running.process.wait()
    state = read_shim_state(folder)
    assert state is not None
    assert identify(daemon)
    assert end_orphans(folder, running.plan.launch, state) == []
    assert identify(daemon) is None
    assert identify(state.child_pid) is None
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()
    assert not state.group or not Path(state.group).exists()


def test_who_got_the_process_id_of_the_training_meanwhile_is_left_alone(folder: Path) -> None:
    gone = subprocess.Popen(["sleep", "60"])
    shim = identify(gone.pid)
    assert shim is not None
    gone.kill()
    gone.wait()
    stranger = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        state = ShimState(shim=shim, child_pid=stranger.pid)
        assert end_orphans(folder, make_launch(), state) == []
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_port_that_a_survivor_holds_is_named_until_it_is_free(folder: Path) -> None:
    """The survivor is this test: it has been handed the socket, so the end of the replica does not close it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    door.bind(str(folder / "door"))
    door.listen()
    plan = make_plan(folder, make_launch(port=port, tf_config={"cluster": {}}))
    running = start(plan, PASSES_ITS_PORT_ON.format(port=port, path=str(folder / "door")))
    guest, _ = door.accept()
    _, descriptors, _, _ = socket.recv_fds(guest, 1, 1)
    guest.close()
    end = running.exit()
    assert [each.kind for each in end.leftovers] == [LeftoverKind.PORT]
    assert end.leftovers[0].words.startswith(f"port {port}: process {os.getpid()} (")
    kept = read_leftovers(folder)
    assert kept is not None
    assert is_still_there(kept.found[0])
    behind = Leftovers(folder)
    behind.add(ReplicaKey(7, 1), folder)
    assert [told.leftovers for told in behind.check(now=0.0)] == [end.leftovers]
    os.close(descriptors[0])
    again = Leftovers(folder)  # the agent was started anew
    again.add(ReplicaKey(7, 1), folder)
    assert [told.leftovers for told in again.check(now=1.0)] == [[]]
    assert [told.leftovers for told in again.check(now=REPEATED_S)] == [[]]
    assert again.check(now=REPEATED_S + 2.0) == []
    door.close()


def test_a_process_that_would_not_end_is_named_and_told_again(folder: Path) -> None:
    survivor = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], stdout=subprocess.DEVNULL, start_new_session=True
    )
    found = surviving([psutil.Process(survivor.pid)])
    assert found[0].leftover == Leftover(kind=LeftoverKind.PROCESS, words=found[0].leftover.words)
    assert found[0].leftover.words.startswith(f"process {survivor.pid} (")
    write_leftovers(folder, found, group="")
    behind = Leftovers(folder)
    behind.add(ReplicaKey(7, 1), folder)
    assert behind.check(now=0.0)[0].leftovers == [found[0].leftover]
    assert survivor.wait(timeout=20) == -signal.SIGKILL
    assert behind.check(now=1.0)[0].leftovers == []


def test_memory_of_a_gpu_that_ended_processes_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver says who holds it; pids that were there before, and living strangers, are none of ours."""
    gone, stranger, before = 2**22 + 1, os.getpid(), 2**22 + 2
    held = {(1, gone): 3_200_000_000, (1, stranger): 1, (1, before): 1}
    monkeypatch.setattr(gpu_memory, "holders", lambda devices: {key: held[key] for key in held if key[0] in devices})
    launch = make_launch(device_kind=DeviceKind.GPU, devices=[1])
    found = resources_held(launch, before={(1, before): 1}, patience_s=0)
    assert [tracked.leftover for tracked in found] == [
        Leftover(kind=LeftoverKind.MEMORY, words=f"3.2 GB of GPU 1, held for process {gone}")
    ]
    assert is_still_there(found[0])
    held.clear()
    assert not is_still_there(found[0])
    assert resources_held(launch, before={}, patience_s=0) == []


def test_the_driver_is_asked_and_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, calls = gpu_memory.pynvml, []
    holder = type("Process", (), {"pid": 5, "usedGpuMemory": None})

    def no_graphics(_handle: object) -> list[object]:
        raise driver.NVMLError(driver.NVML_ERROR_NOT_SUPPORTED)

    monkeypatch.setattr(driver, "nvmlInit", lambda: calls.append("init"))
    monkeypatch.setattr(driver, "nvmlShutdown", lambda: calls.append("shutdown"))
    monkeypatch.setattr(driver, "nvmlDeviceGetHandleByIndex", lambda index: index)
    monkeypatch.setattr(driver, "nvmlDeviceGetComputeRunningProcesses", lambda _handle: [holder])
    monkeypatch.setattr(driver, "nvmlDeviceGetGraphicsRunningProcesses", no_graphics)
    assert gpu_memory.holders([0, 3]) == {(0, 5): 0, (3, 5): 0}
    assert gpu_memory.holders([]) == {}
    assert calls == ["init", "shutdown"]


def test_a_remnant_of_an_earlier_boot_is_gone() -> None:
    me = identify(os.getpid())
    assert me is not None
    left = Leftover(kind=LeftoverKind.PROCESS, words="process 1")
    assert is_still_there(TrackedLeftover(leftover=left, process=me))
    other = type(me)(pid=me.pid, start_time=me.start_time, boot_id="before")
    assert not is_still_there(TrackedLeftover(leftover=left, process=other))


def test_a_full_disk_costs_counted_output_and_no_point(folder: Path) -> None:
    """The training goes on; points wait for room, of the log what does not fit in memory is counted."""
    plan = make_plan(folder)
    with _small_disk(Path(plan.spool), size_mb=32):
        filler = Path(plan.spool) / "filler"
        sink = SpoolSink(Path(plan.spool) / "trainer", notify=plan.notify)
        _fill(filler)
        emitter = Emitter(sink)
        for step in range(20_000):
            emitter.log(step, {"loss": float(step)})
        running = start(plan, WRITES_12_MB)
        wait_until((Path(plan.code) / "done").exists)
        emitter.flush()
        assert sink.pending_bytes
        filler.unlink()
        wait_until(lambda: running.process.poll() is not None)
        emitter.close()
        gaps = [record for record in running.records() if isinstance(record, Gap)]
        assert [gap.reason for gap in gaps] == ["the node's disk was full"]
        assert len(running.text().encode()) + gaps[0].size_bytes == 12_000_000
        batch = Reader(Path(plan.spool) / "trainer").read(max_records=1 << 30, max_bytes=1 << 30)
        said = [decode_record(data) for data in batch.records]
        assert [step for record in said if isinstance(record, Points) for step in record.steps] == list(range(20_000))


def test_a_full_disk_keeps_no_limit_from_being_kept(folder: Path) -> None:
    full = """
from worker_agent.replica import shim
def write_stop(*_):
    raise OSError(28, "No space left on device")
shim.write_stop = write_stop
"""
    plan = make_plan(folder, make_launch(spec=make_spec(time_limit_s=1)))
    end = start(plan, "import time; time.sleep(60)", driver=full + DRIVER).exit()
    assert (end.signal, end.cause) == (15, Cause.TIME_LIMIT)


def test_out_of_memory_is_told_by_the_kernels_count(folder: Path) -> None:
    with _memory_group(limit_mb=96) as group:
        enter = ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]
        running = start(make_plan(folder), "held = [bytearray(8 << 20) for _ in range(64)]", before=enter)
        end = running.exit()
    assert (end.signal, end.cause) == (9, Cause.OUT_OF_MEMORY)
    assert end.message.startswith("The machine ran out of memory")


def test_an_old_memory_kill_is_not_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    kills = 4
    monkeypatch.setattr(oom, "memory_kills", lambda: kills)
    watch = oom.MemoryKills(now=0.0)
    kills = 5
    assert watch.recent()
    for now in (10.0, 40.0, 80.0):
        watch.update(now=now)
    assert not watch.recent()


@contextlib.contextmanager
def _small_disk(folder: Path, *, size_mb: int) -> Iterator[None]:
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "trainyard-test", str(folder)]
    if os.getuid() or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("a small file system cannot be mounted here: it takes root and CAP_SYS_ADMIN")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def _fill(path: Path) -> None:
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as out:
        while True:
            out.write(b"\0" * 65_536)


@contextlib.contextmanager
def _memory_group(*, limit_mb: int) -> Iterator[Path]:
    """A control group with a memory limit (v1 or v2), below that of this process."""
    counter = next((path for path in oom._counters() if path.parent.name != "proc" and path.exists()), None)
    group = counter.parent / f"trainyard-test-{os.getpid()}" if counter else Path()
    limits = {"memory.limit_in_bytes": limit_mb << 20, "memory.memsw.limit_in_bytes": limit_mb << 20}
    try:
        group.mkdir()
        if not (group / "memory.limit_in_bytes").exists():
            limits = {"memory.max": limit_mb << 20, "memory.swap.max": 0}
        for name, value in limits.items():
            if (group / name).exists():
                (group / name).write_text(str(value))
    except OSError:
        pytest.skip("no control group with a memory limit can be made here")
    try:
        yield group
    finally:
        deadline = time.monotonic() + 10
        while group.exists() and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                group.rmdir()
            time.sleep(0.02)
