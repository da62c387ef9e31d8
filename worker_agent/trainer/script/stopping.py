"""How a script is stopped. SIGTERM itself is the script's: nothing is blocked and no handler is taken, so that what it
does with the signal, and what its own children do, is what they do everywhere.

But TensorFlow swallows the signal under MultiWorkerMirrored, so a thread watches for the request that the agent writes
before it signals, and after `GRACE_S` ends the process wherever it stands; unless the script handles the signal itself
(a handler of its own, a PreemptionCheckpointHandler): then it has as long as the agent gives.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from worker_agent.replica.folder import read_stop
from worker_agent.trainer.outcome import ExitCode
from worker_agent.trainer.script.imports import when_imported
from worker_agent.trainer.setup.stopping import GRACE_S, StopSignal

ASK_EVERY_S = 0.1

_PREEMPTION = "tensorflow.python.distribute.failure_handling.failure_handling"


class ScriptStop(StopSignal):
    """Needs no `take_sigterm`."""

    def __init__(self, leave: Callable[[], None], folder: Path) -> None:
        super().__init__(leave, folder)
        when_imported(_PREEMPTION, self._watch_preemption)

    @property
    def ends_at_once(self) -> bool:
        """True once the replica is to end."""
        return self._ends_at_once.is_set() or read_stop(self._folder) is not None

    def _wait(self) -> None:
        while not self._over.wait(ASK_EVERY_S):
            if self.ends_at_once:
                self._ends_at_once.set()
                if not self._is_handled() and not self._over.wait(GRACE_S) and not self._is_handled():
                    self._leave()
                    os._exit(ExitCode.STOPPED)
                return

    def _is_handled(self) -> bool:
        return self._can_save.is_set() or callable(signal.getsignal(signal.SIGTERM))

    def _watch_preemption(self, module: ModuleType) -> None:
        """A PreemptionCheckpointHandler is given the time to save."""
        make = module.PreemptionCheckpointHandler.__init__

        def made(this: Any, *arguments: Any, **named: Any) -> None:
            self.can_save()
            make(this, *arguments, **named)

        module.PreemptionCheckpointHandler.__init__ = made
