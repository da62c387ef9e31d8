"""The end of an attempt on its node: everything that it started is ended, and it is proved that everything was given
back: no process, the port closed, no memory of a GPU held.

The shim asks for it when the training process has ended, and the daemon when there is no shim (any more). What could
not be given back goes into the Exit record, and as `left.json` into the replica's folder, from where the daemon looks
at it again until it is gone (`daemon/unreturned.py`).
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from worker_agent.machine import cgroup, gpu_memory, listeners
from worker_agent.machine.processes import (
    ENDED,
    Identity,
    Stat,
    descendants,
    identify,
    is_alive,
    kill,
    named,
    of_sessions,
    read_stat,
    running,
)
from worker_agent.protocol.commands import Launch
from worker_agent.protocol.plan import Plan
from worker_agent.protocol.records import Left, LeftKind
from worker_agent.protocol.states import DeviceKind
from worker_agent.replica.folder import ShimState, write_atomically

END_S = 4.0
# A GPU's driver, and the network, may take a moment to let go of what ended processes had.
GIVEN_BACK_S = 3.0

SCRATCH = "scratch"
GROUP_PREFIX = "trainyard-"

_LEFT_FILE = "left.json"
_POLL_S = 0.005
_LOOK_S = 0.1


class Remnant(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was left, and how to see whether it still is there: `process` is who holds it, if that is known;
    `port` at `host` where it is a port, GPU `device` and `pid` where it is memory."""

    left: Left
    process: Identity | None = None
    host: str = ""
    port: int = 0
    device: int = -1
    pid: int = 0


class Remnants(msgspec.Struct, frozen=True, kw_only=True):
    """`left.json`. `group` is the replica's control group, "" where it had none."""

    found: list[Remnant]
    group: str = ""


class Cleanup:
    """One replica's end, in the shim. `group` is the folder of its control group once it is started, "" without one."""

    def __init__(self, plan: Plan) -> None:
        self.group = ""
        self._launch = plan.launch
        self._before: dict[tuple[int, int], int] = {}

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """What is started meanwhile belongs to the replica's control group, if there can be one."""
        self._before = gpu_memory.holders(_gpus(self._launch))
        group = cgroup.make(f"{GROUP_PREFIX}{self._launch.replica_id}-{self._launch.attempt}-{os.getpid()}")
        self.group = str(group.path) if group else ""
        with group.entered() if group else contextlib.nullcontext():
            yield

    def kill(self) -> None:
        """SIGKILL to everything that belongs to the replica, the shim aside."""
        cgroup.kill(self.group)
        kill(self._live())

    def end(self, *, reap: Callable[[], None]) -> list[Remnant]:
        """End what is left of the replica, see that everything is given back; what was not. `reap` collects children.

        Takes milliseconds, or up to `END_S` + `GIVEN_BACK_S` where something will not go.
        """
        deadline = time.monotonic() + END_S
        while (rows := self._live()) and time.monotonic() < deadline:
            self.kill()
            time.sleep(_POLL_S)
            reap()
        reap()
        found = stuck(rows) + look(self._launch, before=self._before)
        cgroup.remove(self.group)
        return found

    def _live(self) -> list[Stat]:
        return _live(descendants(os.getpid()), self.group)


def end_orphans(folder: Path, launch: Launch, state: ShimState) -> list[Remnant]:
    """End what the replica of a dead shim still runs: in its sessions, in its control group, or anywhere with its
    private TMPDIR. What could not be given back, which is also written down."""
    deadline = time.monotonic() + END_S
    while (rows := _orphans(folder, state)) and time.monotonic() < deadline:
        cgroup.kill(state.group)
        kill(rows)
        time.sleep(_POLL_S)
    found = stuck(rows) + look(launch)
    cgroup.remove(state.group)
    write_left(folder, found, group=state.group)
    return found


def end_marked(scratch: Path) -> list[Remnant]:
    """End whatever has this folder as its TMPDIR, in whatever session; what would not go."""
    deadline = time.monotonic() + END_S
    ours: dict[int, Stat] = {}
    while True:
        ours |= {row.pid: row for row in _marked(scratch)}  # the mark of one that is ending goes before it does
        left = stuck(list(ours.values()))
        if not left or time.monotonic() >= deadline:
            return left
        kill(ours.values())
        time.sleep(_POLL_S)


def look(
    launch: Launch, *, before: dict[tuple[int, int], int] | None = None, patience_s: float = GIVEN_BACK_S
) -> list[Remnant]:
    """The port and the GPUs of an ended replica: what of them is not free, after a moment's patience.

    `before` are the holders of GPU memory from before its start; where they are not known, memory is not looked at.
    """
    deadline = time.monotonic() + patience_s
    while found := _port(launch) + _memory(launch, before):
        if time.monotonic() >= deadline:
            return found
        time.sleep(_LOOK_S)
    return []


def is_there(remnant: Remnant) -> bool:
    """Whether what was left still is there."""
    if remnant.process is not None and not is_alive(remnant.process):
        return False
    if remnant.left.kind is LeftKind.PORT:
        return bool(listeners.listening(remnant.host, remnant.port))
    if remnant.left.kind is LeftKind.MEMORY:
        return (remnant.device, remnant.pid) in gpu_memory.holders([remnant.device])
    return True


def write_left(folder: Path, found: list[Remnant], *, group: str) -> None:
    """Keep for the daemon what was left, if anything was and the disk takes it: the Exit record says it in any case."""
    with contextlib.suppress(OSError):
        if found:
            write_atomically(folder / _LEFT_FILE, msgspec.json.encode(Remnants(found=found, group=group)))


def read_left(folder: Path) -> Remnants | None:
    """What was left, if anything was."""
    try:
        return msgspec.json.decode((folder / _LEFT_FILE).read_bytes(), type=Remnants)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def stuck(rows: list[Stat]) -> list[Remnant]:
    """Processes that could not be ended, as far as they still are there."""
    found = []
    for row in rows:
        now = read_stat(row.pid)
        identity = identify(row.pid)
        if now is not None and identity is not None and identity.start_time == row.start_time:
            why = ", which waits in the kernel" if now.state == "D" else ""
            left = Left(kind=LeftKind.PROCESS, words=f"{named(row.pid)}{why}")
            found.append(Remnant(left=left, process=identity))
    return found


def _live(rows: list[Stat], group: str) -> list[Stat]:
    """These processes and those of the control group, each once, without the one that asks."""
    inside = map(read_stat, cgroup.members(group))
    found = {row.pid: row for row in [*rows, *inside] if row is not None and row.state not in ENDED}
    found.pop(os.getpid(), None)
    return list(found.values())


def _orphans(folder: Path, state: ShimState) -> list[Stat]:
    marked = _marked(folder / SCRATCH)
    sessions = of_sessions({pid for pid in (state.shim.pid, state.child_pid) if pid}, since=state.shim)
    # A process id may have gone to somebody else meanwhile, who then leads a session of that number.
    strangers = {row.session for row in sessions if row.pid == row.session} - {row.pid for row in marked}
    ours = [row for row in sessions if row.session not in strangers]
    return list({row.pid: row for row in [*_live(ours, state.group), *marked]}.values())


def _marked(scratch: Path) -> list[Stat]:
    """Processes whose TMPDIR is a replica's or trial's own: what the program has started, wherever it went."""
    mark = f"TMPDIR={scratch}".encode()
    found = []
    for row in running():
        with contextlib.suppress(OSError):
            if mark in Path(f"/proc/{row.pid}/environ").read_bytes().split(b"\0"):
                found.append(row)
    return [row for row in found if row.pid != os.getpid()]


def _port(launch: Launch) -> list[Remnant]:
    sockets = listeners.listening(launch.host, launch.port) if launch.tf_config is not None and launch.port else set()
    if not sockets:
        return []
    pid = listeners.holder(sockets)
    who = f"{named(pid)} listens on it" if pid else "something listens on it"
    return [
        Remnant(
            left=Left(kind=LeftKind.PORT, words=f"port {launch.port}: {who}"),
            process=identify(pid) if pid else None,
            host=launch.host,
            port=launch.port,
        )
    ]


def _memory(launch: Launch, before: dict[tuple[int, int], int] | None) -> list[Remnant]:
    """Memory held by pids that were not there before, and that are no living strangers of this machine.

    Seen from a container, whose pids are not the driver's, every new holder counts.
    """
    found = []
    for (device, pid), size_bytes in gpu_memory.holders(_gpus(launch) if before is not None else []).items():
        if before is not None and (device, pid) not in before and identify(pid) is None:
            words = f"{size_bytes / 1e9:.1f} GB of GPU {device}, held for process {pid}"
            found.append(Remnant(left=Left(kind=LeftKind.MEMORY, words=words), device=device, pid=pid))
    return found


def _gpus(launch: Launch) -> list[int]:
    return launch.devices if launch.device_kind is DeviceKind.GPU else []
