"""Signs that a training moves, for those who look for hangs: what a process is at beside its steps, and how long it has
at most taken from one step to the next. `Emitter` has one and calls `note` and `tell_what_lasts` in its own thread.

A recipe that validates or saves is given more time than one that trains; a script is judged only while it says that it
takes steps. What is over within `LASTS_AFTER_S` is not worth a record. How long a step alone takes is told of recipes
once they have taken `STEPS_SEEN`: what a script does between two steps, nobody knows.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from time import monotonic, time

from worker_agent.protocol.records import LONGEST_GAP, LONGEST_STEP, Facts, Phase, PhaseName, Progress, Record

LASTS_AFTER_S = 5.0
AGAIN_EVERY_S = 30.0
# Shorter gaps between steps matter to no limit; the longest is told again only when it has grown by this factor.
LONGEST_FROM_S = 5.0
GROWTH = 1.2
STEPS_SEEN = 20


class Pulse:
    """`tell` takes records; `now` is a monotonic clock (s). `note` and `tell_what_lasts` belong to one thread."""

    def __init__(self, tell: Callable[[Record], None], *, now: Callable[[], float] = monotonic) -> None:
        self._tell = tell
        self._now = now
        self._lock = Lock()
        self._activity: PhaseName | None = None
        self._entered_at = 0.0
        self._last_told_at: float | None = None
        self._has_moved = False
        self._step_at: float | None = None
        self._longest_gap_s = LONGEST_FROM_S / GROWTH
        self._only_stepped, self._tells_steps = False, True
        self._steps_seen = 0
        self._longest_step_s = self._told_step_s = 0.0

    @contextlib.contextmanager
    def during(self, activity: PhaseName) -> Iterator[Callable[[], None]]:
        """Within it, the process is at `activity` and takes no steps. What is given is to be called as it gets on."""
        self.enter(activity)
        try:
            yield self.moves
        finally:
            self.leave()

    def enter(self, activity: PhaseName, *, steps: bool = False) -> None:
        """From now on the process is at `activity`; with `steps`, the first of them is awaited."""
        with self._lock:
            if activity == self._activity:
                return
            self._activity, self._entered_at, self._has_moved = activity, self._now(), False
            self._only_stepped = False
            if steps:
                self._step_at = self._entered_at

    def leave(self) -> None:
        """The activity is over: what is usual goes on."""
        with self._lock:
            if self._last_told_at is not None:
                self._tell(Phase(at=time(), name=PhaseName.TRAINING))
            self._activity = self._last_told_at = None
            self._only_stepped = False

    def moves(self) -> None:
        """The activity gets on."""
        self._has_moved = True

    def does_more(self) -> None:
        """From now on the program does things of its own between two steps: who knows how long they may take."""
        self._tells_steps = False

    def note(self, records: Sequence[Record]) -> None:
        """What the process says now: the time since its last step is compared with the longest so far."""
        # From there on a recipe's first step is awaited.
        if any(isinstance(record, Phase) and record.name == PhaseName.BUILDING for record in records):
            self._step_at = self._now()
        if not any(isinstance(record, Progress) for record in records):
            return
        now, last = self._now(), self._step_at
        self._step_at = now
        if last is not None and now - last >= self._longest_gap_s * GROWTH:
            self._longest_gap_s = now - last
            self._tell(Facts(at=time(), facts={LONGEST_GAP: round(self._longest_gap_s, 1)}))
        with self._lock:
            only_stepped, self._only_stepped = self._only_stepped, self._activity is None
        if last is not None and only_stepped and self._tells_steps:
            self._note_step(now - last)

    def _note_step(self, seconds: float) -> None:
        """The time from one step to the next, with nothing else in between."""
        self._steps_seen += 1
        self._longest_step_s = max(self._longest_step_s, seconds)
        if self._steps_seen >= STEPS_SEEN and self._longest_step_s >= self._told_step_s * GROWTH:
            self._told_step_s = self._longest_step_s
            self._tell(Facts(at=time(), facts={LONGEST_STEP: round(self._longest_step_s, 3)}))

    def tell_what_lasts(self) -> None:
        """Tell an activity that lasts, and again when it has got on."""
        with self._lock:
            if not self._activity:
                return
            now = self._now()
            is_new = self._last_told_at is None and now - self._entered_at >= LASTS_AFTER_S
            is_due = self._last_told_at is not None and self._has_moved and now - self._last_told_at >= AGAIN_EVERY_S
            if is_new or is_due:
                self._last_told_at, self._has_moved = now, False
                self._tell(Phase(at=time(), name=self._activity))
