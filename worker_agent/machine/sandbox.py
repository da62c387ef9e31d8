"""Limits for a program that nobody trusts yet."""

import contextlib
import ctypes
import os
import resource

_FILE_BYTES = 2 << 30
_CLONE_NEWNET = 0x40000000


def confine(*, time_s: int, memory_bytes: int, nice: int) -> bool:
    """Limit this process and all that it will start: CPU time, memory and size of files, no core dump, a priority; the
    kernel ends it first where memory runs out. True where it has no network any more either, which the kernel takes
    away for root on Linux alone. Call it while there is one thread."""
    for kind, most in (
        (resource.RLIMIT_CPU, time_s * (os.cpu_count() or 1)),
        (resource.RLIMIT_DATA, memory_bytes),
        (resource.RLIMIT_FSIZE, _FILE_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (allowed, allowed))  # hard ones: none can be raised again
    os.nice(nice)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:  # noqa: PTH123
        score.write("1000")
    unshared: int = ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET)
    return unshared == 0
