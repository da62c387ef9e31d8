"""What a script's process says, whichever way the numbers came: from `fit`, event files, or `trainyard.log`.

Every process tells its own points and how far it is. The one that leads also tells the job's latest metrics, at most
once a `SUMMARY_S`, because a script may log at any rate.
"""

import math
from collections.abc import Mapping
from threading import Lock
from time import monotonic, time

from worker_agent.protocol.records import FactValue, PhaseName, Progress, Summary
from worker_agent.trainer.emit import Emitter

SUMMARY_S = 1.0


class ScriptReport:
    """One per process; called by any thread. `leads`: this process speaks for the job."""

    def __init__(self, emitter: Emitter, *, leads: bool) -> None:
        self._emitter = emitter
        self._leads = leads
        self._lock = Lock()
        self._latest: dict[str, float] = {}
        self._furthest = 0
        self._epoch = 0
        self._flushed_at = -math.inf
        self._is_counted = False

    def scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        """Points of a custom loop; without a `fit` or `trainyard.progress` they also say how far it is."""
        if not scalars:
            return
        self._emitter.log(step, scalars)
        with self._lock:
            self._latest.update(scalars)
            if not self._is_counted:
                self._furthest = max(self._furthest, step)
            due = monotonic() - self._flushed_at >= SUMMARY_S
        if due:
            self.flush()

    def found(self, step: int, scalars: Mapping[str, float]) -> None:
        """Points of an event file. Where the script speaks otherwise too, they are points and nothing more."""
        if self._is_counted:
            self.points(step, scalars)
        else:
            self.scalars(step, scalars)

    def progress(self, step: int, total_steps: int, epoch: int, epochs: int) -> None:
        """How far the script says it is: below its total, the next step is to be expected."""
        self.stepping(expected=step < total_steps)
        self.counted(step, total_steps, epoch, epochs)

    def counted(self, step: int, total_steps: int, epoch: int, epochs: int) -> None:
        """How far the training is, counted by somebody who knows."""
        with self._lock:
            self._is_counted = True
            self._epoch = epoch
        self._emitter.record(Progress(at=time(), step=step, total_steps=total_steps, epoch=epoch, epochs=epochs))

    def stepping(self, *, expected: bool) -> None:
        """Whether one step comes after the other from now on. A script may do anything else for as long as it likes."""
        if expected:
            self._emitter.pulse.enter(PhaseName.STEPPING, steps=True)
        else:
            self._emitter.pulse.leave()

    def points(self, step: int, scalars: Mapping[str, float]) -> None:
        """Points alone."""
        if scalars:
            self._emitter.log(step, scalars)

    def epoch(self, number: int, metrics: Mapping[str, float]) -> None:
        """The job's metrics after epoch `number` (from 1)."""
        if self._leads and metrics:
            self._emitter.record(Summary(at=time(), epoch=number, metrics=dict(metrics)))

    def facts(self, **facts: FactValue) -> None:
        """What is particular to this process."""
        if facts:
            self._emitter.facts(**facts)

    def flush(self) -> None:
        """Tell what is known and not told yet of a custom loop."""
        with self._lock:
            latest, self._latest = self._latest, {}
            self._flushed_at = monotonic()
            counted, step, epoch = self._is_counted, self._furthest, self._epoch
        if latest and not counted:
            self._emitter.record(Progress(at=time(), step=step, total_steps=0, epoch=0, epochs=0))
        if latest and self._leads:
            self._emitter.record(Summary(at=time(), epoch=epoch, metrics=latest))
