"""SIGTERM, taken away from TensorFlow (whose preemption notifier swallows it) and answered within seconds.

The signal is blocked in every thread, before any other thread exists, and one thread waits for it: no handler is
involved, so nobody can replace it, and it works while the main thread sits in an import, a rendezvous or a collective
whose peer is gone. The training ends between two executions; after `GRACE_S` the process leaves wherever it is.

Where `stop.json` asks for a checkpoint first (a pause), the signal only says so: the gang agrees on a step, saves it
and leaves by itself, in the time that the agent gives. A second signal, without that wish, ends it as above.
"""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from worker_agent.folder import read_stop
from worker_agent.trainer.outcome import ExitCode, Stopped

GRACE_S = 1.0


def take_sigterm() -> None:
    """Block the signal. In the main thread and before any other thread exists: they inherit it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


class StopSignal:
    """Needs `take_sigterm`. `leave` is called before the process goes: write what is left. `folder`: the replica's."""

    def __init__(self, leave: Callable[[], None], folder: Path) -> None:
        self._leave = leave
        self._folder = folder
        self._asked = threading.Event()
        self._saves = threading.Event()
        self._over = threading.Event()
        threading.Thread(target=self._wait, name="stop", daemon=True).start()

    @property
    def asked(self) -> bool:
        """True since SIGTERM came, and not for a pause."""
        return self._asked.is_set()

    @property
    def saves(self) -> bool:
        """True once this process is to save, with its gang, and leave (`Paused`)."""
        return self._saves.is_set()

    def check(self) -> None:
        """Raise `Stopped` when it is to end at once; called between executions."""
        if self._asked.is_set():
            raise Stopped

    def wait(self) -> None:
        """Sleep until SIGTERM comes, then raise `Stopped`. For processes that only serve."""
        self._asked.wait()
        raise Stopped

    def pause(self, seconds: float) -> None:
        """Sleep, or raise `Stopped` as soon as SIGTERM comes."""
        if self._asked.wait(seconds):
            raise Stopped

    def finished(self) -> None:
        """The main thread is on its way out by itself: do not cut it short."""
        self._over.set()

    def _wait(self) -> None:
        signal.sigwait({signal.SIGTERM})
        while (request := read_stop(self._folder)) is not None and request.save:
            self._saves.set()
            signal.sigwait({signal.SIGTERM})
        self._asked.set()
        if not self._over.wait(GRACE_S):
            self._leave()
            os._exit(ExitCode.STOPPED)
