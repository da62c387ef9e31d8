"""Which cores the threads of this process run on."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def pinned(cores: int) -> Iterator[int]:
    """All threads of this process on its first `cores` cores, as far as it has so many: that number. Threads that
    begin meanwhile belong to them as well; in the end all have what this one had."""
    mine = os.sched_getaffinity(0)
    few = set(sorted(mine)[: max(1, cores)])
    _move(few)
    try:
        yield len(few)
    finally:
        _move(mine)


def _move(cores: set[int]) -> None:
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has just ended
            os.sched_setaffinity(int(thread.name), cores)
