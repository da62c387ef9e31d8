"""Runs a program that nobody trusts yet within limits, and leaves nothing of it: the parent of a node's building check.

`python -m worker_agent.sandbox --time-s 60 --memory-bytes N -- PROGRAM …` gives the program the lowest priority, limits
on CPU time, memory and file size, no core dump, and no network where the kernel lets this process (Linux, root) take it
away. It leaves with the program's status (128 + n for signal n), or with `TIMED_OUT`, also when whoever started it is
gone. Whatever the program has started, in whatever session, is gone by then. `TRAINYARD_NO_NETWORK=1` tells the program
that it has none.
"""

import argparse
import contextlib
import ctypes
import math
import os
import resource
import signal
import subprocess
import sys
import time

from worker_agent.processes import descendants, kill

TIMED_OUT = 124
NO_NETWORK = "TRAINYARD_NO_NETWORK"

_FILE_BYTES = 2 << 30
_LEFTOVERS_S = 5.0
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_CLONE_NEWNET = 0x40000000


def run(command: list[str], *, time_s: float, memory_bytes: int) -> int:
    """Run it to its end or the limit; the status to leave with."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TIMED_OUT))
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    environment = dict(os.environ)
    if libc.unshare(_CLONE_NEWNET) == 0:
        environment[NO_NETWORK] = "1"
    _limit(time_s=time_s, memory_bytes=memory_bytes)
    try:
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)
        code = process.wait(time_s)
    except subprocess.TimeoutExpired:
        return TIMED_OUT
    finally:
        _end_leftovers()
    return code if code >= 0 else 128 - code


def _limit(*, time_s: float, memory_bytes: int) -> None:
    """For this process and all below it: hard limits, so none can be raised again."""
    seconds = math.ceil(time_s) * (os.cpu_count() or 1)
    for kind, most in (
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_DATA, memory_bytes),
        (resource.RLIMIT_FSIZE, _FILE_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (allowed, allowed))
    os.nice(19)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:  # noqa: PTH123
        score.write("1000")


def _end_leftovers() -> None:
    deadline = time.monotonic() + _LEFTOVERS_S
    while (rows := descendants(os.getpid())) and time.monotonic() < deadline:
        kill(rows)
        time.sleep(0.01)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m worker_agent.sandbox", description=__doc__)
    parser.add_argument("--time-s", type=float, required=True)
    parser.add_argument("--memory-bytes", type=int, required=True)
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    sys.exit(run(given.command, time_s=given.time_s, memory_bytes=given.memory_bytes))


if __name__ == "__main__":
    main()
