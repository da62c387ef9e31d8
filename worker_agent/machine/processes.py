"""Processes, where psutil does not reach: an identity that outlives the agent, sessions, signals without mistakes.

Called by the shim and by the daemon. A pid alone proves nothing after a restart: `Identity` adds the kernel's start
time and the boot, and nothing is ever signalled without that proof (psutil's own for its `Process`), so no bystander
is.
"""

import contextlib
import os
import signal
from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec
import psutil

_PROC = Path("/proc")


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """One process of one boot. `start_time` is in clock ticks since that boot."""

    pid: int
    start_time: int
    boot_id: str


def identify(pid: int) -> Identity | None:
    """The identity of a running process; None when there is none (any more)."""
    try:
        state, *fields = (_PROC / str(pid) / "stat").read_text().rpartition(") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state in "ZX" else Identity(pid=pid, start_time=int(fields[18]), boot_id=boot_id())


def is_alive(identity: Identity) -> bool:
    """Whether exactly this process still runs (one that ended but was not waited for does not)."""
    return identify(identity.pid) == identity


def boot_id() -> str:
    """Changes with every start of the machine."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def send_signal(process: Identity, number: int) -> None:
    """Signal exactly this process, or nobody."""
    with contextlib.suppress(OSError):
        handle = os.pidfd_open(process.pid)
        try:
            if is_alive(process):
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def signal_group(group: int, number: int) -> None:
    """Signal a process group that may be gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def describe(pid: int) -> str:
    """`process 4711 (python3)`; no arguments, because everybody may read it."""
    with contextlib.suppress(psutil.Error):
        return f"process {pid} ({psutil.Process(pid).name()})"
    return f"process {pid}"


def running(pids: Iterable[int]) -> list[psutil.Process]:
    """Those of these processes that have not ended."""
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(pid))
    return [process for process in found if not has_ended(process)]


def has_ended(process: psutil.Process) -> bool:
    """Whether exactly this process has ended, waited for or not."""
    try:
        return not process.is_running() or process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return True


def descendants(pid: int) -> list[psutil.Process]:
    """The children of a process, their children, and so on."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [child for child in psutil.Process(pid).children(recursive=True) if not has_ended(child)]
    return []


def in_sessions(sessions: Collection[int], *, since: Identity) -> list[psutil.Process]:
    """Processes of these sessions that are not older than the process `since` of the same boot.

    Finds what a dead shim left behind; a session id used again after a reboot, or by an older process, is no match.
    """
    if since.boot_id != boot_id():
        return []
    pids = [pid for pid in psutil.pids() if session_of(pid) in sessions]
    return running(pid for pid in pids if (found := identify(pid)) and found.start_time >= since.start_time)


def session_of(pid: int) -> int:
    """The session of a process; 0 when it is gone."""
    with contextlib.suppress(ProcessLookupError):
        return os.getsid(pid)
    return 0


def kill(processes: Iterable[psutil.Process]) -> None:
    """SIGKILL each of these processes, if it is still the same one."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
