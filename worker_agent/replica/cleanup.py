"""The end of an attempt on its node: everything that it started is ended, and it is proved that everything was given
back: no process, the port closed, no memory of a GPU held.

The shim asks for it when the training process has ended, and the daemon when there is no shim (any more).
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from worker_agent.machine import cgroup
from worker_agent.machine.processes import descendants, has_ended, in_sessions, kill, running, session_of
from worker_agent.protocol.commands import Launch
from worker_agent.protocol.plan import Plan
from worker_agent.replica.folder import ShimState
from worker_agent.replica.leftovers import (
    TrackedLeftover,
    gpu_memory_holders,
    resources_held,
    surviving,
    write_leftovers,
)

END_S = 4.0

SCRATCH = "scratch"
GROUP_PREFIX = "trainyard-"

_POLL_S = 0.005


class Cleanup:
    """One replica's end, in the shim. `group` is the folder of its control group once it is started, "" without one."""

    def __init__(self, plan: Plan) -> None:
        self.group = ""
        self._launch = plan.launch
        self._before: dict[tuple[int, int], int] = {}

    @contextlib.contextmanager
    def inside_group(self) -> Iterator[None]:
        """What is started meanwhile belongs to the replica's control group, if there can be one."""
        self._before = gpu_memory_holders(self._launch)
        name = f"{GROUP_PREFIX}{self._launch.replica_id}-{self._launch.attempt}-{os.getpid()}"
        with cgroup.entered(name) as self.group:
            yield

    def kill(self) -> None:
        """SIGKILL to everything that belongs to the replica, the shim aside."""
        cgroup.kill(self.group)
        kill(self._alive())

    def end(self, *, reap: Callable[[], None]) -> list[TrackedLeftover]:
        """End what is left of the replica, see that everything is given back; what was not. `reap` collects children.

        Takes milliseconds, or up to `END_S` + `GIVEN_BACK_S` where something will not go.
        """
        left = _end_all(self._alive, group=self.group, reap=reap) + resources_held(self._launch, before=self._before)
        cgroup.remove(self.group)
        return left

    def _alive(self) -> list[psutil.Process]:
        return _with_group(descendants(os.getpid()), self.group)


def end_orphans(folder: Path, launch: Launch, state: ShimState) -> list[TrackedLeftover]:
    """End what the replica of a dead shim still runs: in its sessions, in its control group, or anywhere with its
    private TMPDIR. What could not be given back, which is also written down."""
    left = _end_all(lambda: _orphans(folder, state), group=state.group) + resources_held(launch)
    cgroup.remove(state.group)
    write_leftovers(folder, left, group=state.group)
    return left


def end_using(scratch: Path) -> list[TrackedLeftover]:
    """End whatever has this folder as its TMPDIR, in whatever session; what would not go."""
    ours: set[psutil.Process] = set()

    def alive() -> list[psutil.Process]:
        ours.update(_using(scratch))  # of one that is ending, the TMPDIR goes before it does
        return [process for process in ours if not has_ended(process)]

    return _end_all(alive)


def _end_all(
    find: Callable[[], list[psutil.Process]], *, group: str = "", reap: Callable[[], None] = lambda: None
) -> list[TrackedLeftover]:
    """SIGKILL to the group and to what `find` finds, until that is nothing, or `END_S` are over; what would not go."""
    deadline = time.monotonic() + END_S
    while (found := find()) and time.monotonic() < deadline:
        cgroup.kill(group)
        kill(found)
        time.sleep(_POLL_S)
        reap()
    reap()
    return surviving(found)


def _with_group(processes: list[psutil.Process], group: str) -> list[psutil.Process]:
    """These processes and those of the control group, each once, without the one that asks."""
    return [each for each in {*processes, *running(cgroup.members(group))} if each.pid != os.getpid()]


def _orphans(folder: Path, state: ShimState) -> list[psutil.Process]:
    using = _using(folder / SCRATCH)
    ours = in_sessions({pid for pid in (state.shim.pid, state.child_pid) if pid}, since=state.shim)
    # A process id may have gone to somebody else meanwhile, who then leads a session of that number.
    strangers = {each.pid for each in ours if session_of(each.pid) == each.pid} - {each.pid for each in using}
    return _with_group([*using, *(each for each in ours if session_of(each.pid) not in strangers)], state.group)


def _using(scratch: Path) -> list[psutil.Process]:
    """Processes whose TMPDIR is a replica's or trial's own: what the program has started, wherever it went."""
    mark = f"TMPDIR={scratch}".encode()
    pids = []
    for pid in psutil.pids():
        with contextlib.suppress(OSError):
            if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                pids.append(pid)
    return [process for process in running(pids) if process.pid != os.getpid()]
