"""What an ended replica has not given back: a process, its port, memory of a GPU; and looking at it again.

`cleanup.py` finds it. It goes into the Exit record, and as `left.json` into the replica's folder, from where the daemon
looks at it until it is gone (`daemon/leftovers.py`).
"""

import contextlib
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec
import psutil

from worker_agent.machine import gpu_memory
from worker_agent.machine.files import read_json, write_json
from worker_agent.machine.listeners import listener
from worker_agent.machine.processes import Identity, describe, has_ended, identify, is_alive
from worker_agent.protocol.commands import Launch
from worker_agent.protocol.records import Leftover, LeftoverKind
from worker_agent.protocol.states import DeviceKind

# A GPU's driver, and the network, may take a moment to let go of what ended processes had.
GIVEN_BACK_S = 3.0

_FILE = "left.json"
_POLL_S = 0.1


class TrackedLeftover(msgspec.Struct, frozen=True, kw_only=True):
    """A leftover, and how to see whether it still is there: `process` is who holds it, if that is known; `port` at
    `host` where it is a port, GPU `device` and `pid` where it is memory."""

    leftover: Leftover = msgspec.field(name="left")
    process: Identity | None = None
    host: str = ""
    port: int = 0
    device: int = -1
    pid: int = 0


class LeftoversFile(msgspec.Struct, frozen=True, kw_only=True):
    """`left.json`. `group` is the replica's control group, "" where it had none."""

    found: list[TrackedLeftover]
    group: str = ""


def write_leftovers(folder: Path, found: list[TrackedLeftover], *, group: str) -> None:
    """Keep them for the daemon, if there are any and the disk takes it: the Exit record says it in any case."""
    with contextlib.suppress(OSError):
        if found:
            write_json(folder / _FILE, LeftoversFile(found=found, group=group))


def read_leftovers(folder: Path) -> LeftoversFile | None:
    """What was left, if anything was."""
    return read_json(folder / _FILE, LeftoversFile)


def gpu_memory_holders(launch: Launch) -> dict[tuple[int, int], int]:
    """Bytes held of the replica's GPUs, by (device, pid)."""
    return gpu_memory.holders(launch.devices if launch.device_kind is DeviceKind.GPU else [])


def resources_held(
    launch: Launch, *, before: dict[tuple[int, int], int] | None = None, patience_s: float = GIVEN_BACK_S
) -> list[TrackedLeftover]:
    """The port and the GPUs of an ended replica: what of them is not free, after a moment's patience.

    `before` are the holders of GPU memory from before its start; where they are not known, memory is not looked at.
    """
    deadline = time.monotonic() + patience_s
    while found := _port_held(launch) + (_memory_held(launch, before) if before is not None else []):
        if time.monotonic() >= deadline:
            return found
        time.sleep(_POLL_S)
    return []


def surviving(processes: Iterable[psutil.Process]) -> list[TrackedLeftover]:
    """Processes that could not be ended, as far as they still are there."""
    found = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            identity = identify(process.pid)
            if identity is not None and not has_ended(process):
                why = ", which waits in the kernel" if process.status() == psutil.STATUS_DISK_SLEEP else ""
                leftover = Leftover(kind=LeftoverKind.PROCESS, words=f"{describe(process.pid)}{why}")
                found.append(TrackedLeftover(leftover=leftover, process=identity))
    return found


def is_still_there(tracked: TrackedLeftover) -> bool:
    """Whether what was left still is there."""
    if tracked.process is not None and not is_alive(tracked.process):
        return False
    if tracked.leftover.kind is LeftoverKind.PORT:
        return listener(tracked.host, tracked.port) is not None
    if tracked.leftover.kind is LeftoverKind.MEMORY:
        return (tracked.device, tracked.pid) in gpu_memory.holders([tracked.device])
    return True


def _port_held(launch: Launch) -> list[TrackedLeftover]:
    pid = listener(launch.host, launch.port) if launch.tf_config is not None and launch.port else None
    if pid is None:
        return []
    words = f"port {launch.port}: {describe(pid) if pid else 'something'} listens on it"
    leftover = Leftover(kind=LeftoverKind.PORT, words=words)
    return [TrackedLeftover(leftover=leftover, process=identify(pid), host=launch.host, port=launch.port)]


def _memory_held(launch: Launch, before: dict[tuple[int, int], int]) -> list[TrackedLeftover]:
    """Memory held by pids that were not there before, and that are no living strangers of this machine.

    Seen from a container, whose pids are not the driver's, every new holder counts.
    """
    found = []
    for (device, pid), size_bytes in gpu_memory_holders(launch).items():
        if (device, pid) not in before and identify(pid) is None:
            words = f"{size_bytes / 1e9:.1f} GB of GPU {device}, held for process {pid}"
            leftover = Leftover(kind=LeftoverKind.MEMORY, words=words)
            found.append(TrackedLeftover(leftover=leftover, device=device, pid=pid))
    return found
