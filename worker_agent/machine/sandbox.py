"""Runs a program that nobody trusts yet within limits, and leaves nothing of it: the parent of a node's building check.

The program gets a priority, limits on CPU time, memory and file size, no core dump, and no network where the kernel
lets this process (Linux, root) take it away; `TRAINYARD_NO_NETWORK=1` tells it so. How it ended is its status (128 + n
for signal n), or `TIMED_OUT`, also when whoever started it is gone. Whatever the program has started, in whatever
session, is gone by then; where it has killed this process, its caller ends that (`daemon/probes/building.py`).

Started cold by the daemon (`python -m worker_agent.machine.sandbox --time-s 60 --memory-bytes N -- PROGRAM …`, which
leaves with that status), or warm by the zygote, which forks and calls `run`.
"""

import argparse
import contextlib
import ctypes
import math
import os
import resource
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping

from worker_agent.machine.processes import descendants, kill

TIMED_OUT = 124
NO_NETWORK = "TRAINYARD_NO_NETWORK"
LOWEST_PRIORITY = 19

Become = Callable[[dict[str, str]], int]

_FILE_BYTES = 2 << 30
_LEFTOVERS_S = 5.0
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_CLONE_NEWNET = 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)


class _Asked(Exception):
    """SIGTERM: it is to end now."""


def run(
    become: Become,
    environment: Mapping[str, str],
    *,
    time_s: float,
    memory_bytes: int,
    nice: int,
    line: socket.socket | None = None,
) -> int:
    """Run the program to its end or the limit, in a process of its own; how it ended.

    `become(environment)` is called there: it replaces the process, or returns the status to leave with. Once the other
    end of `line` is closed, nobody waits any more. Call it in a process with one thread, which ends afterwards.
    """
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    environment = dict(environment)
    if _libc.unshare(_CLONE_NEWNET) == 0:
        environment[NO_NETWORK] = "1"
    _limit(time_s=time_s, memory_bytes=memory_bytes, nice=nice)
    try:
        signal.signal(signal.SIGTERM, _end)
        return _wait(_fork(become, environment, line), time_s=time_s, line=line)
    except _Asked:
        return TIMED_OUT
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _end_leftovers()


def _limit(*, time_s: float, memory_bytes: int, nice: int) -> None:
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
    os.nice(nice)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:  # noqa: PTH123
        score.write("1000")


def _end(*_: object) -> None:
    raise _Asked


def _fork(become: Become, environment: dict[str, str], line: socket.socket | None) -> int:
    """The pid of the program: it leads a session of its own, and does not outlive this process."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if line is not None:
            line.close()
        code = become(environment)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait(pid: int, *, time_s: float, line: socket.socket | None) -> int:
    """Until the program has ended, its time is over, or nobody waits any more."""
    handle = os.pidfd_open(pid)
    watched: list[int | socket.socket] = [handle] if line is None else [handle, line]
    ready, _, _ = select.select(watched, [], [], time_s)
    if handle not in ready:
        return TIMED_OUT
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code if code >= 0 else 128 - code


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
    parser = argparse.ArgumentParser(prog="python -m worker_agent.machine.sandbox", description=__doc__)
    parser.add_argument("--time-s", type=float, required=True)
    parser.add_argument("--memory-bytes", type=int, required=True)
    parser.add_argument("--nice", type=int, default=LOWEST_PRIORITY)
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    command: list[str] = given.command
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)  # of whoever started it, which is the parent

    def become(environment: dict[str, str]) -> int:
        os.execvpe(command[0], command, environment)

    sys.exit(run(become, os.environ, time_s=given.time_s, memory_bytes=given.memory_bytes, nice=given.nice))


if __name__ == "__main__":
    main()
