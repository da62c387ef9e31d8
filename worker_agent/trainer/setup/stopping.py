"""SIGTERM, taken away from TensorFlow (whose preemption notifier swallows it) and answered within seconds.

The signal is blocked in every thread, before any other thread exists, and one thread waits for it: no handler is
involved, so nobody can replace it, and it works while the main thread sits in an import, a rendezvous or a collective
whose peer is gone. The training ends between two executions; after `GRACE_S` the process leaves wherever it is.

Where `stop.json` asks for a checkpoint first (a pause), the signal only says so: the gang agrees on a step, saves it
and leaves by itself, in the time that the agent gives. A signal without `stop.json` is not Trainyard's: a machine that
is about to go, or a person. It asks for the same, of a process that trains and keeps checkpoints. A second one of that
kind, or a wish to end at once, ends it as above.

A process that only serves has nothing to save, but who computes on it has: it says that it is to leave (`serves`), and
goes on for most of the time that it is given, or until it is asked once more.
"""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from worker_agent.protocol.states import Cause
from worker_agent.replica.folder import read_stop
from worker_agent.replica.verdict import PREEMPTED_GRACE_S
from worker_agent.trainer.outcome import ExitCode, Stopped

GRACE_S = 1.0
# A process that only serves stays for as long as its shim allows, less what its own end takes.
SPARE_S = 3.0
FOR_EVER_S = 1e9


def take_sigterm() -> None:
    """Block the signal. In the main thread and before any other thread exists: they inherit it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


class StopSignal:
    """Needs `take_sigterm`. `leave` is called before the process goes: write what is left. `folder`: the replica's."""

    def __init__(self, leave: Callable[[], None], folder: Path) -> None:
        self._leave = leave
        self._folder = folder
        self._ends_at_once = threading.Event()
        self._saves = threading.Event()
        self._can_save = threading.Event()
        self._preempted = threading.Event()
        self._over = threading.Event()
        self._say_why: Callable[[Cause], None] | None = None
        threading.Thread(target=self._wait, name="stop", daemon=True).start()

    @property
    def ends_at_once(self) -> bool:
        """True since it is to end at once."""
        return self._ends_at_once.is_set()

    @property
    def saves(self) -> bool:
        """True once this process is to save, with its gang, and leave (`Paused`)."""
        return self._saves.is_set()

    @property
    def is_preempted(self) -> bool:
        """True once a SIGTERM has come that Trainyard did not send."""
        return self._preempted.is_set()

    def can_save(self) -> None:
        """From now on the training looks at `saves`, and has checkpoints to write."""
        self._can_save.set()

    def serves(self, say_why: Callable[[Cause], None]) -> None:
        """From now on another process trains on this one, and keeps checkpoints; `say_why` tells why it is to leave."""
        self._say_why = say_why
        self._can_save.set()

    def check(self) -> None:
        """Raise `Stopped` when it is to end at once; called between executions."""
        if self._ends_at_once.is_set():
            raise Stopped

    def wait(self) -> None:
        """Sleep until SIGTERM comes, then raise `Stopped`. For processes that only serve."""
        self._ends_at_once.wait()
        raise Stopped

    def sleep(self, seconds: float) -> None:
        """Sleep, or raise `Stopped` as soon as SIGTERM comes."""
        if self._ends_at_once.wait(seconds):
            raise Stopped

    def finished(self) -> None:
        """The main thread is on its way out by itself: do not cut it short."""
        self._over.set()

    def _wait(self) -> None:
        signal.sigwait({signal.SIGTERM})
        while self._is_to_save():
            if signal.sigtimedwait({signal.SIGTERM}, self._begin_saving()) is None:
                break
        self._ends_at_once.set()
        if not self._over.wait(GRACE_S):
            self._leave()
            os._exit(ExitCode.STOPPED)

    def _begin_saving(self) -> float:
        """Say it, once; for how many seconds this process goes on unless it is asked again."""
        is_first = not self._saves.is_set()
        self._saves.set()
        if self._say_why is None:
            return FOR_EVER_S
        request = read_stop(self._folder)
        if is_first:
            self._say_why(Cause.PREEMPTED if request is None else request.cause)
        given_s = PREEMPTED_GRACE_S if request is None else request.grace_s
        return max(given_s - SPARE_S, 0.0)

    def _is_to_save(self) -> bool:
        """What the signal that has come means: to save and leave, else to leave at once."""
        request = read_stop(self._folder)
        if request is not None:
            return request.save and (request.cause is Cause.PAUSED or self._can_save.is_set())
        is_second = self._preempted.is_set()
        self._preempted.set()
        return self._can_save.is_set() and not is_second
