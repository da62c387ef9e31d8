"""How shims are started: warm, forked from a zygote, a process of each Keras flavour that has TensorFlow imported, or
cold.

Zygotes are started by name, so TensorFlow stays out of the daemon. One that dies is started again; one that is not
ready in time, or keeps dying, is passed over and the shim starts cold. One that is of no use for some time ends and
comes back when it is expected to be of use: a trial or a launch has arrived, or somebody is filling in a job for here.
"""

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from worker_agent.daemon.settings import program_environment, socket_path
from worker_agent.protocol.commands import Launch, imports_for_itself
from worker_agent.protocol.job.gang_shape import keras_of
from worker_agent.protocol.states import Keras
from worker_agent.replica.folder import SHIM_LOG

# A cold start would take as long: it imports the same, on the same busy machine.
READY_S = 60.0
ANSWER_S = 3.0
CHECK_EVERY_S = 1.0
DEATHS_MAX = 3

# What a zygote holds is little beside this much memory.
MUCH_MEMORY_BYTES = 64_000_000_000
IDLE_S = 600.0

_POLL_S = 0.02
_END_S = 2.0

log = structlog.get_logger("zygotes")


def default_idle_s(*, memory_bytes: int) -> float:
    """For how long a machine with so much memory keeps a zygote that is of no use; 0: for ever."""
    return IDLE_S if memory_bytes < MUCH_MEMORY_BYTES else 0.0


class Zygote:
    """One zygote process. Called by several threads."""

    def __init__(self, data: Path, flavour: Keras, *, idle_s: float = 0.0) -> None:
        self._flavour = flavour
        self._idle_s = idle_s
        self._socket = socket_path(data, f"zygote-{flavour}.sock")
        self._log = data / "logs" / f"zygote-{flavour}.log"
        self._log.parent.mkdir(exist_ok=True, mode=0o700)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._deaths = 0

    def ensure_running(self) -> bool:
        """Start it when it does not run; False when it has died too often to try again."""
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                return True
            if self._process is not None and self._process.returncode != 0:
                self._deaths += 1
                log.warning("zygote ended", flavour=self._flavour, code=self._process.returncode, log=str(self._log))
            self._process = None
            if self._deaths >= DEATHS_MAX:
                return False
            Path(self._socket).unlink(missing_ok=True)
            options = ("--flavour", self._flavour, "--socket", self._socket, "--parent", str(os.getpid()))
            idle = ("--idle", str(self._idle_s))
            self._process = _start("worker_agent.trainer.zygote", *options, *idle, output=self._log)
            self._started_at = time.monotonic()
            return True

    @property
    def is_running(self) -> bool:
        """Whether it is there, or at least about to be."""
        process = self._process
        return process is not None and process.poll() is None

    def revive(self) -> None:
        """Start it again when it has died; not when it has ended because it was of no use."""
        process = self._process
        if process is not None and process.poll():
            self.ensure_running()

    def fork(self, plan: Path, *, wait: Callable[[float], bool]) -> int | None:
        """The pid of a shim forked for this plan; None when a cold start is the better way. `wait(s)` pauses, and is
        true when nobody waits any more."""
        asked_at = time.monotonic()
        while self.ensure_running():
            with contextlib.suppress(OSError, ValueError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
                line.settimeout(ANSWER_S)
                line.connect(self._socket)
                line.sendall(f"{plan}\n".encode())
                return int(line.makefile("rb", buffering=0).readline())
            now = time.monotonic()
            # One that was ready long ago may just be leaving, and is then started anew.
            is_late = now - self._started_at > READY_S and now - asked_at > _END_S
            if is_late or wait(_POLL_S):
                return None
        return None

    def close(self) -> None:
        """End it."""
        with self._lock:
            if self._process is None:
                return
            self._process.terminate()
            try:
                self._process.wait(_END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._deaths = DEATHS_MAX
            Path(self._socket).unlink(missing_ok=True)


class Zygotes:
    """The zygotes of this agent, none of them when `enabled` is false. Each is let go after `idle_s` without use (0:
    never)."""

    def __init__(self, data: Path, *, enabled: bool, idle_s: float = 0.0) -> None:
        self._zygotes = {flavour: Zygote(data, flavour, idle_s=idle_s) for flavour in Keras} if enabled else {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="zygotes", daemon=True)

    def start(self) -> None:
        """Start the usual flavour now; the other one with its first replica."""
        self._thread.start()

    def start_shim(self, plan: Path, launch: Launch, *, wait: Callable[[float], bool]) -> int:
        """The pid of a shim for this plan, with the Keras that the launch needs; `wait` as of `Zygote.fork`."""
        zygote = self._zygote_of(launch)
        return (zygote.fork(plan, wait=wait) if zygote else None) or _start_cold(plan)

    def warm(self, keras: Keras) -> None:
        """A shim may be wanted soon: what it is forked from shall be there by then."""
        if zygote := self._zygotes.get(keras):
            zygote.ensure_running()

    def expect(self, launch: Launch) -> None:
        """A shim will be wanted for this launch: what it is forked from shall be there by then."""
        if zygote := self._zygote_of(launch):
            zygote.ensure_running()

    def _zygote_of(self, launch: Launch) -> Zygote | None:
        """None where one would be of no use: it is not there, and the launch is to import TensorFlow for itself."""
        zygote = self._zygotes.get(keras_of(launch.spec))
        return zygote if zygote and (zygote.is_running or not imports_for_itself(launch.spec, launch.env)) else None

    def close(self) -> None:
        """End them; shims that were forked live on."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(timeout=CHECK_EVERY_S)
        for zygote in self._zygotes.values():
            zygote.close()

    def _keep(self) -> None:
        if usual := self._zygotes.get(Keras.KERAS3):
            usual.ensure_running()
        while not self._closing.wait(CHECK_EVERY_S):
            for zygote in self._zygotes.values():
                zygote.revive()


def _start_cold(plan: Path) -> int:
    process = _start("worker_agent.replica.shim", "--plan", str(plan), output=plan.parent / SHIM_LOG)
    threading.Thread(target=process.wait, name=f"shim-{process.pid}", daemon=True).start()
    return process.pid


def _start(module: str, *options: str, output: Path) -> subprocess.Popen[bytes]:
    """A program of ours in a session of its own; what it says itself goes to `output`."""
    with output.open("wb") as said:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", module, *options],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env=program_environment(os.environ),
            start_new_session=True,
        )
