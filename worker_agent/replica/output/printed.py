"""Points out of what a training process prints, for a job that names them (`worker_agent/protocol/job/printed.py`).

Called by the shim with each piece of output, next to which the records go. However much is printed, a bounded part is
read, and a bounded number of points leaves: of more, an even choice, and always the last.
"""

from collections import defaultdict

from worker_agent.protocol.commands import Launch
from worker_agent.protocol.job.gang_shape import has_chief, is_leader
from worker_agent.protocol.job.printed import Point, PrintedNumbers, names_in
from worker_agent.protocol.records import Points, Progress, Record, Summary

POINTS_S = 20.0
BURST_POINTS = 2_000.0
CHARS_S = 100_000.0
BURST_CHARS = 2_000_000.0
LEAST_CHARS = 4_000
SUMMARY_S = 1.0


class Printed:
    """One per process."""

    def __init__(self, launch: Launch, *, now: float) -> None:
        self._numbers = PrintedNumbers(names_in(launch.spec.printed))
        self._leads = is_leader(launch.role, launch.index, has_chief=has_chief(launch.spec))
        self._left, self._left_chars = BURST_POINTS, BURST_CHARS
        self._filled_at = self._told_at = now
        self._step = 0
        self._untold: dict[str, float] = {}

    def records(self, text: str, *, now: float, at: float, final: bool = False) -> list[Record]:
        """What follows from a piece of output; `at` is the wall clock for the records."""
        passed_s, self._filled_at = now - self._filled_at, now
        self._left = min(BURST_POINTS, self._left + passed_s * POINTS_S)
        self._left_chars = min(BURST_CHARS, self._left_chars + passed_s * CHARS_S)
        text = text[-max(LEAST_CHARS, int(self._left_chars)) :]
        self._left_chars = max(0.0, self._left_chars - len(text))
        points = self._numbers.feed(text, final=final)
        alike: dict[tuple[str, ...], list[Point]] = defaultdict(list)
        for step, values in points:
            alike[tuple(values)].append((step, values))
            self._step = max(self._step, step)
            self._untold |= values
        said: list[Record] = [self._points(names, run, at, len(alike)) for names, run in alike.items()]
        if self._untold and (final or now - self._told_at >= SUMMARY_S):
            self._told_at = now
            said.append(Progress(at=at, step=self._step, total_steps=0, epoch=0, epochs=0))
            if self._leads:
                said.append(Summary(at=at, epoch=0, metrics=self._untold))
            self._untold = {}
        return said

    def _points(self, names: tuple[str, ...], run: list[Point], at: float, others: int) -> Points:
        every = -(-len(run) // max(1, int(self._left) // others))
        kept = run[::-1][::every][::-1]
        self._left = max(0.0, self._left - len(kept))
        return Points(
            names=list(names),
            steps=[step for step, _ in kept],
            times=[at] * len(kept),
            values=[[values[name] for _, values in kept] for name in names],
        )
