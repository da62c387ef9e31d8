"""Runs a program that nobody trusts yet within limits, and leaves nothing of it: the parent of a trial.

The program gets a priority, limits on CPU time, memory and file size, no core dump, and no network where the kernel
lets this process (Linux, root) take it away; `TRAINYARD_NO_NETWORK=1` tells it so. Whatever the program has started, in
whatever session, is gone when `run` returns; where it has killed this process, the agent ends that
(`daemon/probes/building.py`).
"""

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

Become = Callable[[dict[str, str]], int]

_FILE_BYTES = 2 << 30
_LEFTOVERS_S = 5.0
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_CLONE_NEWNET = 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)


def run(
    become: Become,
    environment: Mapping[str, str],
    line: socket.socket,
    *,
    time_s: float,
    memory_bytes: int,
    nice: int,
) -> int:
    """Run the program in a process of its own. How it ended: its status (128 + n for signal n), or `TIMED_OUT`, also
    when the other end of `line` was closed, as nobody waits then.

    `become(environment)` is called there: it replaces the process, or returns the status to leave with. Call it in a
    process with one thread, which ends afterwards.
    """
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    environment = dict(environment)
    if _libc.unshare(_CLONE_NEWNET) == 0:
        environment[NO_NETWORK] = "1"
    seconds = math.ceil(time_s) * (os.cpu_count() or 1)
    for kind, most in (
        (resource.RLIMIT_CPU, seconds),
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
    try:
        pid = _fork(become, environment, line)
        ended = os.pidfd_open(pid)
        if ended not in select.select([ended, line.fileno()], [], [], time_s)[0]:
            return TIMED_OUT
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return code if code >= 0 else 128 - code
    finally:
        _end_leftovers()


def _fork(become: Become, environment: dict[str, str], line: socket.socket) -> int:
    """The pid of the program: it leads a session of its own, and does not outlive this process."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        line.close()
        code = become(environment)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _end_leftovers() -> None:
    deadline = time.monotonic() + _LEFTOVERS_S
    while (found := descendants(os.getpid())) and time.monotonic() < deadline:
        kill(found)
        time.sleep(0.01)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
