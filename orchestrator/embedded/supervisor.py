"""Keeps the processes of an embedded Trainyard alive and, in the end, leaves none behind.

Each child has a session of its own (so that Ctrl-C reaches `up` alone, which stops things in the right order), dies
with `up` (PR_SET_PDEATHSIG), writes to a log file of its own, and is started again with growing pauses when it ends.
`up` is also the subreaper of what its children leave behind, so that leftovers are found, grandchildren too.
Single-threaded: the owner calls `tick()` a few times a second.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from orchestrator.embedded.folder import write_private
from orchestrator.embedded.processes import ManagedProcess

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
FIRST_PAUSE_S, LONGEST_PAUSE_S, HEALTHY_AFTER_S = 0.5, 30.0, 30.0
LOG_LIMIT_BYTES = 20_000_000
LAST_GRACE_S = 3.0

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass
class Child:
    """What is kept alive and the process that runs it now. `failures` counts the ends since it last ran well."""

    managed: ManagedProcess
    process: "subprocess.Popen[bytes] | None" = None
    started_at: float = 0.0
    start_at: float = 0.0
    failures: int = 0


class Supervisor:
    """The children by name. `say` tells the person; `table` is a file that lists the running process ids."""

    def __init__(self, *, root: Path, logs: Path, table: Path, say: Callable[[str], None]) -> None:
        self._root, self._logs, self._table, self._say = root, logs, table, say
        self._children: dict[str, Child] = {}
        self._started: list[subprocess.Popen[bytes]] = []
        logs.mkdir(parents=True, exist_ok=True, mode=0o700)
        _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def start(self, managed: ManagedProcess) -> None:
        """Start a process and keep it running."""
        child = self._children[managed.name] = Child(managed)
        self._spawn(child)

    def run_once(self, managed: ManagedProcess) -> "subprocess.Popen[bytes]":
        """Start a process that ends by itself; its output is the caller's to read."""
        with self._log_to(managed).open("ab") as log:
            return self._popen(managed, stdout=subprocess.PIPE, stderr=log)

    def tick(self) -> None:
        """Notice who has ended, reap what is ours by adoption, start again what is due."""
        self._reap()
        now = time.monotonic()
        for child in self._children.values():
            if child.process is not None and child.process.poll() is not None:
                self._note_end(child, now)
            if child.process is None and now >= child.start_at:
                self._spawn(child)

    def failures(self, name: str) -> int:
        """How often in a row this process has ended soon after its start."""
        return self._children[name].failures

    def log_tail(self, name: str, lines: int = 15) -> str:
        """The last lines that a process wrote."""
        path = self._log_file(name)
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:]) if path.exists() else ""

    def stop(self, names: Iterable[str]) -> None:
        """End these together: SIGTERM, then SIGKILL to the group of each that takes longer than it may."""
        ending = [self._children.pop(name) for name in list(names) if name in self._children]
        live = [(child.managed, child.process) for child in ending if child.process is not None]
        began = time.monotonic()
        for _, process in live:
            process.terminate()
        while live:
            self._reap()
            live = [(managed, process) for managed, process in live if process.poll() is None]
            for managed, process in live:
                if time.monotonic() - began > managed.stop_s:
                    self._say(f"{managed.name} did not end within {managed.stop_s:.0f} s; killing it")
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            time.sleep(0.05)
        self._write_table()

    def names(self) -> list[str]:
        """The processes being kept alive, in the order they were started."""
        return list(self._children)

    def end_leftovers(self, data: Path) -> int:
        """End every process still left of this installation; how many there were."""
        left = left_behind(data)
        for each in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.terminate()
        psutil.wait_procs(left, timeout=LAST_GRACE_S)
        for each in left_behind(data):
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        self._reap()
        return len(left)

    def _spawn(self, child: Child) -> None:
        with self._log_to(child.managed).open("ab") as log:
            child.process = self._popen(child.managed, stdout=log, stderr=subprocess.STDOUT)
        child.started_at = time.monotonic()
        self._write_table()

    def _popen(
        self, managed: ManagedProcess, *, stdout: int | IO[bytes], stderr: int | IO[bytes]
    ) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            managed.argv(),
            cwd=self._root,
            env=dict(managed.environment),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
        self._started.append(process)
        return process

    def _note_end(self, child: Child, now: float) -> None:
        process, child.process = child.process, None
        healthy = now - child.started_at >= HEALTHY_AFTER_S
        child.failures = 1 if healthy else child.failures + 1
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (child.failures - 1))
        child.start_at = now + pause_s
        how = _how_it_ended(process.returncode if process else 0)
        name = child.managed.name
        self._say(f"{name} ended ({how}); starting it again in {pause_s:.1f} s (log: {self._log_file(name)})")

    def _reap(self) -> None:
        """Collect every ended child: our own through their Popen, adopted ones directly."""
        own = {process.pid: process for process in self._started if process.returncode is None}
        self._started = list(own.values())
        while ended := _next_ended():
            if ended in own:
                own.pop(ended).poll()
            else:
                os.waitpid(ended, 0)

    def _log_file(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def _log_to(self, managed: ManagedProcess) -> Path:
        """The log of a process that is about to start; what grew too long is put aside first."""
        path = self._log_file(managed.name)
        if path.exists() and path.stat().st_size > LOG_LIMIT_BYTES:
            path.replace(path.with_suffix(".log.1"))
        return path

    def _write_table(self) -> None:
        running = {name: child.process.pid for name, child in self._children.items() if child.process is not None}
        write_private(self._table, running)


def left_behind(data: Path) -> list[psutil.Process]:
    """Processes started from here, or whose command line names the data folder; never this one or its ancestors."""
    found = {each.pid: each for each in [*psutil.Process().children(recursive=True), *naming(data)]}
    return list(found.values())


def naming(data: Path) -> list[psutil.Process]:
    """Processes whose command line names something in the data folder; never this one or its ancestors."""
    this = psutil.Process()
    spared = {this.pid, *(each.pid for each in this.parents())}
    running = [each for each in psutil.process_iter(["cmdline"]) if each.pid not in spared]
    return [each for each in running if any(f"{data}/" in word for word in each.info["cmdline"] or [])]


def _next_ended() -> int:
    """The process id of an ended child that nobody has collected yet, or 0."""
    try:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return 0
    return ended.si_pid if ended else 0


def _die_with_parent() -> None:
    """Between fork and exec: ask the kernel for SIGTERM when `up` is gone, even by SIGKILL."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _how_it_ended(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
