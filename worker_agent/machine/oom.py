"""Whether the kernel ended a process for memory: it counts such ends, for a control group and for the machine.

The count that is nearest to this process is read: that of its own control group (cgroup v2 or v1), else the machine's.
Called by the shim.
"""

import contextlib
from pathlib import Path

WINDOW_S = 30.0

_PROC = Path("/proc")


class MemoryKills:
    """Watches the count, so that a process that was killed is not blamed on what happened hours before."""

    def __init__(self, *, now: float) -> None:
        self._counts = self._before = memory_kills()
        self._at = now

    def update(self, *, now: float) -> None:
        """To be called every second or so; `now` is monotonic."""
        if now - self._at >= WINDOW_S:
            self._before, self._counts, self._at = self._counts, memory_kills(), now

    def recent(self) -> int:
        """How many processes the kernel ended for memory within the last one or two windows."""
        return max(0, memory_kills() - self._before)


def memory_kills() -> int:
    """How often the kernel has ended a process for memory."""
    for path in _counters():
        with contextlib.suppress(OSError):
            for line in path.read_text().splitlines():
                name, _, value = line.partition(" ")
                if name == "oom_kill" and value.isdecimal():
                    return int(value)
    return 0


def _counters() -> list[Path]:
    """The files that count, nearest first."""
    mounts = Path("/sys/fs/cgroup")
    found = []
    with contextlib.suppress(OSError):
        for line in (_PROC / "self/cgroup").read_text().splitlines():
            _, controllers, own = line.split(":", 2)
            if "memory" in controllers.split(","):
                found += [
                    mounts / "memory" / own.strip("/") / "memory.oom_control",
                    mounts / "memory/memory.oom_control",
                ]
            elif not controllers:
                found.append(mounts / own.strip("/") / "memory.events")
    return [*found, _PROC / "vmstat"]
