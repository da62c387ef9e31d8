"""Linux processes as the agent needs them: an identity that cannot be mistaken, sessions, descendants, ending them.

Called by the shim and by the daemon. A pid alone proves nothing after a restart: `Identity` adds the kernel's start
time and the boot, and nothing is ever signalled without that proof, so no bystander is.
"""

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path

import msgspec

ENDED = frozenset("ZX")

_PROC = Path("/proc")


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """One process of one boot. `start_time` is in clock ticks since that boot."""

    pid: int
    start_time: int
    boot_id: str


class Stat(msgspec.Struct, frozen=True, kw_only=True):
    """The part of `/proc/<pid>/stat` that is used here."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    start_time: int


def identify(pid: int) -> Identity | None:
    """The identity of a running process; None when there is none (any more)."""
    stat = read_stat(pid)
    if stat is None or stat.state in ENDED:
        return None
    return Identity(pid=pid, start_time=stat.start_time, boot_id=boot_id())


def is_alive(identity: Identity) -> bool:
    """Whether exactly this process still runs (one that ended but was not waited for does not)."""
    return identify(identity.pid) == identity


def boot_id() -> str:
    """Changes with every start of the machine."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def read_stat(pid: int) -> Stat | None:
    """One process' row, or None when it is gone."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return Stat(
        pid=pid,
        state=fields[0],
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        start_time=int(fields[19]),
    )


def named(pid: int) -> str:
    """`process 4711 (python3)`; no arguments, because everybody may read it."""
    with contextlib.suppress(OSError):
        name = (_PROC / str(pid) / "comm").read_text(errors="replace").strip()
        return f"process {pid} ({name})"
    return f"process {pid}"


def running() -> list[Stat]:
    """Every process that has not ended."""
    rows = (read_stat(int(entry.name)) for entry in _PROC.iterdir() if entry.name.isdecimal())
    return [row for row in rows if row is not None and row.state not in ENDED]


def descendants(pid: int) -> list[Stat]:
    """The children of a process, their children, and so on."""
    children: dict[int, list[Stat]] = {}
    for row in running():
        children.setdefault(row.parent, []).append(row)
    found: list[Stat] = []
    queue = [pid]
    while queue:
        for row in children.get(queue.pop(), []):
            found.append(row)
            queue.append(row.pid)
    return found


def of_sessions(sessions: Iterable[int], *, since: Identity) -> list[Stat]:
    """Processes of these sessions that are not older than the process `since` of the same boot.

    Finds what a dead shim left behind; a session id used again after a reboot, or by an older process, is no match.
    """
    if since.boot_id != boot_id():
        return []
    wanted = set(sessions)
    return [row for row in running() if row.session in wanted and row.start_time >= since.start_time]


def signal_group(group: int, number: int) -> None:
    """Signal a process group that may be gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def kill(rows: Iterable[Stat]) -> None:
    """SIGKILL each of these processes, if it is still the same one."""
    for row in rows:
        current = read_stat(row.pid)
        if current is not None and current.start_time == row.start_time:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(row.pid, signal.SIGKILL)
