"""A control group for each replica (cgroup v2), where this machine lets us have one: what is in it can be ended as one
and seen to be gone, whatever sessions and groups its processes have made for themselves.

The shim steps into the new group, starts the training process there and steps out again, so that not even the first
fork is outside. It is made below the shim's own group and changes no limit. Used by `cleanup.py`.
"""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

_REMOVE_S = 1.0
_POLL_S = 0.005


@contextlib.contextmanager
def entered(name: str) -> Iterator[str]:
    """Be in a new group below the one this process is in; what is started meanwhile stays there. Its folder, "" where
    there is no cgroup v2 that can be written to."""
    home = own_folder()
    if home is None or not _enter(home / name, home):
        yield ""
        return
    try:
        yield str(home / name)
    finally:
        _move(home)


def own_folder() -> Path | None:
    """Where the cgroup v2 of this process is found in the file system."""
    with contextlib.suppress(OSError):
        groups = Path("/proc/self/cgroup").read_text().splitlines()
        own = next((line.removeprefix("0::") for line in groups if line.startswith("0::")), None)
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            before, _, after = line.partition(" - ")
            root, mounted_at = before.split()[3:5]
            if own is not None and after.startswith("cgroup2 ") and Path(own).is_relative_to(root):
                return Path(mounted_at) / Path(own).relative_to(root)
    return None


def remove_abandoned(prefix: str) -> None:
    """Take away empty groups of this prefix, made below our own by processes that are gone: `<prefix>…-<pid>`."""
    home = own_folder()
    for path in home.glob(f"{prefix}*") if home is not None else ():
        maker = path.name.rpartition("-")[2]
        if maker.isdecimal() and not psutil.pid_exists(int(maker)):
            remove(str(path))


def kill(group: str) -> None:
    """SIGKILL to everything in the group, at once. Like all that follows, nothing for "", a group that there is not."""
    if group:
        with contextlib.suppress(OSError):
            Path(group, "cgroup.kill").write_text("1")


def is_populated(group: str) -> bool:
    """Whether a live process is in the group, or in one below it."""
    if group:
        with contextlib.suppress(OSError):
            return "populated 1" in Path(group, "cgroup.events").read_text().splitlines()
    return False


def members(group: str) -> list[int]:
    """The pids in the group and below."""
    found: list[int] = []
    for folder in _folders(group):
        with contextlib.suppress(OSError):
            found += map(int, (folder / "cgroup.procs").read_text().split())
    return found


def remove(group: str) -> None:
    """Take an empty group away, with those that its processes made below it. One that is not empty stays."""
    deadline = time.monotonic() + _REMOVE_S
    while (folders := _folders(group)) and not is_populated(group) and time.monotonic() < deadline:
        for folder in reversed(folders):
            with contextlib.suppress(OSError):
                folder.rmdir()
        if folders[0].is_dir():  # the kernel takes a moment to let go of the last one that was in it
            time.sleep(_POLL_S)


def _folders(group: str) -> list[Path]:
    """The group and all below it, parents first."""
    path = Path(group)
    return [path, *sorted(entry for entry in path.rglob("*") if entry.is_dir())] if group and path.is_dir() else []


def _enter(group: Path, home: Path) -> bool:
    with contextlib.suppress(OSError):
        group.mkdir()
        _move(group)
        if is_populated(str(group)):
            return True
        _move(home)  # the kernel does not say who is in the group
    remove(str(group))
    return False


def _move(path: Path) -> None:
    (path / "cgroup.procs").write_text(str(os.getpid()))
