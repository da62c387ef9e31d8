"""The shim: the small parent of one training process. It outlives the agent and never imports TensorFlow.

It leads a session of its own, starts the training process in a process group of its own, writes its output and its end
to the `shim` stream of the spool, passes a stop on (SIGTERM to the shim; `stop.json` says why), enforces the time
limit and the lease, and ends whatever the training left running. Started cold by the daemon (`python -m
worker_agent.replica.shim --plan PLAN`), or warm by the zygote, which forks and calls `supervise` with a `start` of its
own.
"""

import argparse
import contextlib
import ctypes
import fcntl
import math
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from worker_agent.machine.files import locked
from worker_agent.machine.oom import MemoryKills
from worker_agent.machine.processes import Identity, identify, signal_group
from worker_agent.protocol.codec import decode_plan
from worker_agent.protocol.commands import saves_when_asked
from worker_agent.protocol.ending import Ending
from worker_agent.protocol.plan import Plan
from worker_agent.protocol.records import Started, Stream
from worker_agent.protocol.states import Cause
from worker_agent.replica import stacks
from worker_agent.replica.cleanup import Cleanup
from worker_agent.replica.folder import LOCK_FILE, ShimState, find_exit, read_stop, write_shim_state, write_stop
from worker_agent.replica.lease import Lease
from worker_agent.replica.leftovers import write_leftovers
from worker_agent.replica.shim_stream import ShimStream
from worker_agent.replica.spool import last_records
from worker_agent.replica.training_process import start_cold, training_environment
from worker_agent.replica.verdict import (
    LAST_LINES,
    PREEMPTED_GRACE_S,
    ExitStatus,
    StopRequest,
    as_it_came_about,
    judge,
    last_words,
)

StartProcess = Callable[[dict[str, str], int], int]

_TICK_S = 0.05
_IDLE_S = 1.0
_PIPE_BYTES = 1024 * 1024
_PR_SET_CHILD_SUBREAPER = 36


def supervise(plan: Plan, start: StartProcess, *, warm: bool = False) -> None:
    """Run one replica from start to Exit record, in a process that leads its own session.

    `start(environment, stdout_fd)` begins the training process with stdout and stderr on that descriptor and returns
    its pid. A `start` that forks calls `become_child` first thing in the child. Returns at once when another shim has
    this replica, or when it has ended already.
    """
    with contextlib.suppress(BlockingIOError), locked(Path(plan.folder) / LOCK_FILE):
        if find_exit(Path(plan.spool)) is None:
            _Shim(plan).run(start, warm=warm)


class _Shim:
    """One supervision: the training process, its output, its end."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._folder = Path(plan.folder)
        self._stream = ShimStream(plan)
        self._stop: StopRequest | None = None
        self._kill_at = math.inf
        self._killed = False
        self._child = 0
        self._status: ExitStatus | None = None
        self._kernel_saw = ""
        self._lease = Lease(plan.lease, plan.launch.lease_s)
        self._memory_kills = MemoryKills(now=time.monotonic())
        self._cleanup = Cleanup(plan)

    def run(self, start: StartProcess, *, warm: bool) -> None:
        me = identify(os.getpid())
        if me is None:
            raise RuntimeError("this process has no entry in /proc")
        # Orphans among our descendants become our children, so that none escapes by forking twice.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        with _signals_as_bytes() as signals:
            write_shim_state(self._folder, ShimState(shim=me))
            self._stop = read_stop(self._folder) or self._lease.overdue_stop()
            if self._stop is not None:
                message = f"{self._stop.reason or 'It was stopped.'} It had not started yet."
                self._stream.finish(Ending(cause=self._stop.cause), message)
                return
            try:
                output = self._start(start, me)
            except OSError as error:
                self._cleanup.end(reap=self._reap)
                self._stream.finish(
                    Ending(cause=Cause.LAUNCH_REFUSED), f"The training process could not be started: {error}"
                )
                return
            self._stream.append(Started(at=time.time(), pid=self._child, pgid=self._child, warm=warm))
            self._stream.store_output()
            status = self._watch(output, signals)
            left = self._cleanup.end(reap=self._reap)
            self._read(output)
            os.close(output)
            self._stream.store_output(final=True)
        ending, message = judge(
            as_it_came_about(status, stop=self._stop, kind=self._plan.launch.spec.kind),
            words=last_words(last_records(Path(self._plan.spool) / Stream.TRAINER)),
            stop=self._stop,
            killed=self._killed,
            memory_kills=self._memory_kills.recent(),
            last_lines=self._stream.capture.last_lines(LAST_LINES),
            kernel_saw=self._kernel_saw,
        )
        write_leftovers(self._folder, left, group=self._cleanup.group)
        self._stream.finish(ending, message, leftovers=[tracked.leftover for tracked in left])

    def _start(self, start: StartProcess, me: Identity) -> int:
        """Begin the training process; the reading end of its output."""
        output, inner = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            with contextlib.suppress(OSError):  # the kernel's limit for pipes may be lower
                fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
            os.set_blocking(inner, True)
            os.chdir(self._plan.code)
            with self._cleanup.inside_group():
                self._child = start(training_environment(self._plan, dict(os.environ)), inner)
        except OSError:
            os.close(output)
            raise
        finally:
            os.close(inner)
        with contextlib.suppress(OSError):  # it has exec'd already, and then in a group of its own
            os.setpgid(self._child, self._child)
        write_shim_state(self._folder, ShimState(shim=me, child_pid=self._child, group=self._cleanup.group))
        return output

    def _watch(self, output: int, signals: int) -> ExitStatus:
        """Until the training process has ended: take its output once a tick, pass on a stop, keep the limits."""
        limit_s = self._plan.launch.spec.time_limit_s
        ends_at = time.monotonic() + (limit_s or math.inf)
        read_at = 0.0
        while self._status is None:
            now = time.monotonic()
            look_at = min(now + (_TICK_S if self._stream.is_waiting else _IDLE_S), ends_at, self._kill_at)
            watched = [signals]
            if read_at > now:
                look_at = min(look_at, read_at)
            else:
                watched.append(output)
            ready, _, _ = select.select(watched, [], [], max(0.0, look_at - now))
            now = time.monotonic()
            self._memory_kills.update(now=now)
            if output in ready:
                read_at = now + _TICK_S if self._read(output) else math.inf
            if signals in ready:
                self._on_signals(os.read(signals, 4096))
            if now >= ends_at:
                ends_at = math.inf
                reason, grace_s = f"It reached its time limit of {limit_s} s.", self._plan.kill_grace_s
                self._begin_stop(StopRequest(at=time.time(), cause=Cause.TIME_LIMIT, reason=reason, grace_s=grace_s))
            if (overdue := self._lease.overdue_stop()) is not None:
                self._begin_stop(overdue)
            if now >= self._kill_at:
                self._kill_at = now + _IDLE_S
                self._kill_all()
            self._stream.store_output()
        return self._status

    def _on_signals(self, numbers: bytes) -> None:
        if signal.SIGCHLD in numbers:
            self._reap()
        if signal.SIGTERM in numbers:
            self._begin_stop(read_stop(self._folder) or self._preempted())

    def _preempted(self) -> StopRequest:
        """What a SIGTERM means that the agent did not send: the machine is about to go, or a person wants it so."""
        return StopRequest(
            at=time.time(),
            cause=Cause.PREEMPTED,
            reason="A SIGTERM that Trainyard did not send ended it.",
            grace_s=PREEMPTED_GRACE_S,
            save=saves_when_asked(self._plan.launch),
        )

    def _begin_stop(self, request: StopRequest) -> None:
        """SIGTERM to the group now, SIGKILL after the grace time. The first request's cause is kept (unless it was to
        save), on disk too: the training process looks there what is asked, or when its SIGTERM was taken away."""
        if request.stacks and self._stop is None and self._status is None:
            launch, artifacts = self._plan.launch, Path(self._plan.artifacts)
            path = artifacts / stacks.artifact_name(launch.role, launch.index)
            self._kernel_saw = stacks.collect(self._child, folder=self._folder, path=path, why=request.reason)
        if self._stop is None or self._stop.yields_to(request):
            self._stop = request
        with contextlib.suppress(OSError):  # a full disk: the end comes all the same
            write_stop(self._folder, request)
        self._kill_at = min(self._kill_at, time.monotonic() + request.grace_s)
        if self._status is None:
            signal_group(self._child, signal.SIGTERM)

    def _reap(self) -> None:
        """Take the exit status of the training process, and of descendants that became ours."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self._child:
                    code = os.waitstatus_to_exitcode(status)
                    self._status = ExitStatus(code if code >= 0 else None, -code if code < 0 else None)

    def _kill_all(self) -> None:
        self._reap()
        if self._status is None:
            self._killed = True
            signal_group(self._child, signal.SIGKILL)
        self._cleanup.kill()

    def _read(self, output: int) -> bool:
        """Take what is in the pipe; False when nothing will ever come again."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(64):
                data = os.read(output, _PIPE_BYTES)
                if not data:
                    return False
                self._stream.capture.feed(data, now=time.monotonic())
        return True


@contextlib.contextmanager
def _signals_as_bytes() -> Iterator[int]:
    """SIGTERM and SIGCHLD arrive as bytes on the descriptor given; terminal signals are not for us."""
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        yield reading
    finally:
        signal.set_wakeup_fd(-1)
        os.close(reading)
        os.close(writing)


def main() -> None:
    """The cold start: the training program as a new Python process."""
    parser = argparse.ArgumentParser(prog="python -m worker_agent.replica.shim", description=__doc__)
    parser.add_argument("--plan", required=True, type=Path)
    path: Path = parser.parse_args().plan.resolve()
    supervise(decode_plan(path.read_bytes()), partial(start_cold, path))


if __name__ == "__main__":
    main()
