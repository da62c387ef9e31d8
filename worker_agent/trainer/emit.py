"""What the training says, on its way out: points and records go into a queue, a timed thread writes them.

The training thread pays one deque append per point and never waits for a disk or a socket. The other thread rests until
something comes, waits `GATHER_S` for what comes with it, groups it, writes it with one write to the sink (the spool, or
a terminal off-cluster) and rings the agent once: at most once in `FLUSH_S`. Recipes may call `trainyard.log` from their
Keras callbacks.
"""

import contextlib
import sys
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from queue import Empty, SimpleQueue
from time import monotonic, sleep, time
from typing import Protocol, TextIO

from worker_agent.protocol import codec
from worker_agent.protocol.records import Facts, FactValue, Phase, PhaseName, Points, Progress, Record
from worker_agent.replica.spool import Writer
from worker_agent.trainer.pulse import Pulse

FLUSH_S = 0.05
# What a step says, it says within moments: its points and how far it is travel together.
GATHER_S = 0.005
LOOK_EVERY_S = 0.5
CLOSE_WAIT_S = 0.5
DISK_WAIT_S = 120.0
RECORD_NUMBERS_MAX = 20_000
PRINT_EVERY_S = 2.0

_QUIET_PHASES = {PhaseName.TRAINING, PhaseName.DONE}

_LoggedPoint = tuple[int, float, Mapping[str, float]]


class Sink(Protocol):
    """Where grouped records go: all of one flush at once, from one thread at a time."""

    @property
    def pending_bytes(self) -> int:
        """Of records that were taken and are not written yet (full disk): `write` shall be called again."""

    @property
    def end(self) -> int:
        """A position: behind all that was taken."""

    @property
    def acknowledged(self) -> int:
        """The position up to which it has arrived."""

    def write(self, records: list[Record]) -> None:
        """Take the records for good."""

    def close(self) -> None:
        """Let go of what it holds."""


class Emitter:
    """One per training process. `log` and `record` may be called from any thread. `pulse` shows that it moves."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._queue: deque[_LoggedPoint | Record] = deque()
        self._append = self._queue.append
        # Unlike an `Event`, it may be rung by a signal handler that interrupts whoever rings.
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._is_resting = False
        self.pulse = Pulse(self.record)
        self._writing = threading.Lock()
        self._closed = threading.Event()
        self._sink_closed = False
        self._thread = threading.Thread(target=self._flush_in_time, name="emit", daemon=True)
        self._thread.start()

    def log(self, step: int, scalars: Mapping[str, float]) -> None:
        """One point of each scalar at `step`, now. Nobody changes `scalars` any more."""
        self._append((step, time(), scalars))
        if self._is_resting:
            self._ring()

    def record(self, record: Record) -> None:
        """Anything else a replica says, in order with the points."""
        self._append(record)
        if self._is_resting:
            self._ring()

    def phase(self, name: PhaseName, detail: str = "") -> None:
        """A milestone of the process."""
        self.record(Phase(at=time(), name=name, detail=detail))

    def facts(self, **facts: FactValue) -> None:
        """What is particular to this replica."""
        self.record(Facts(at=time(), facts=facts))

    def flush(self) -> None:
        """Write what has come so far."""
        with self._writing:
            self._write()

    def position(self) -> int:
        """Write what has come so far; how far that is, to be compared with `acknowledged`."""
        self.flush()
        return self._sink.end

    @property
    def acknowledged(self) -> int:
        """The position up to which the control plane has stored what was said."""
        return self._sink.acknowledged

    def close(self) -> None:
        """Write everything, once and for all. Safe to call from a thread that may not wait for ever."""
        self._closed.set()
        self._ring()
        if not self._writing.acquire(timeout=CLOSE_WAIT_S):
            return
        try:
            self._write()
            if not self._sink_closed:
                self._sink.close()
            self._sink_closed = True
        finally:
            self._writing.release()

    def _write(self) -> None:
        """With the lock held."""
        records = list(grouped([self._queue.popleft() for _ in range(len(self._queue))]))
        self.pulse.note(records)
        if (records or self._sink.pending_bytes) and not self._sink_closed:
            self._sink.write(records)

    def _flush_in_time(self) -> None:
        while not self._closed.is_set():
            self._rest()
            self._closed.wait(GATHER_S)
            self.pulse.tell_what_lasts()
            self.flush()
            self._closed.wait(FLUSH_S - GATHER_S)

    def _rest(self) -> None:
        """Until something has come to be written, or it is time to look at what lasts."""
        # First said, then looked: what comes in between rings.
        self._is_resting = True
        if not self._queue and not self._sink.pending_bytes:
            with contextlib.suppress(Empty):
                self._bell.get(timeout=LOOK_EVERY_S)
        self._is_resting = False

    def _ring(self) -> None:
        self._is_resting = False
        self._bell.put(None)


class SpoolSink(Writer):
    """The product's sink: the replica's spool on disk, and a ring at the agent's door."""

    def write(self, records: list[Record]) -> None:
        """Append all, one write, one datagram; to the platter at times."""
        for record in records:
            try:
                self.append(codec.encode(record))
            except (TypeError, ValueError, OverflowError) as error:  # a name or number that cannot be written down
                sys.stderr.write(f"A {type(record).__name__} record was left out: {error}\n")
        self.publish()

    def close(self) -> None:
        """Close the file. A full disk is waited for; what it refuses for `DISK_WAIT_S` is lost, only here."""
        until = monotonic() + DISK_WAIT_S
        while self.pending_bytes and monotonic() < until:
            sleep(FLUSH_S)
            self.write([])
        with contextlib.suppress(OSError):
            super().close()


class PrintSink:
    """The laptop's sink: milestones and, every two seconds, how far the training is. Nothing is left waiting."""

    pending_bytes = end = acknowledged = 0

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._printed_at = 0.0
        self._loss = ""

    def write(self, records: list[Record]) -> None:
        """Print what a person at a terminal wants to know of them."""
        for record in records:
            match record:
                case Points() if "loss" in record.names:
                    self._loss = f"loss {record.values[record.names.index('loss')][-1]:.4f}"
                case Progress() if record.at - self._printed_at >= PRINT_EVERY_S:
                    self._printed_at = record.at
                    self._say(
                        f"epoch {record.epoch}/{record.epochs}  step {record.step}/{record.total_steps}  {self._loss}"
                    )
                case Phase() if record.name not in _QUIET_PHASES:
                    self._say(f"{record.name} {record.detail}".rstrip())
        self._out.flush()

    def close(self) -> None:
        """Nothing: the terminal is not ours."""

    def _say(self, text: str) -> None:
        self._out.write(text + "\n")


def grouped(items: Iterable[_LoggedPoint | Record]) -> Iterable[Record]:
    """Neighbouring points of the same scalars as one `Points`; everything else as it is, in order."""
    run: list[_LoggedPoint] = []
    for item in items:
        is_alike = run and isinstance(item, tuple) and item[2].keys() == run[-1][2].keys()
        if run and not (is_alike and len(run) * (len(run[-1][2]) + 2) <= RECORD_NUMBERS_MAX):
            yield _points(run)
            run = []
        if isinstance(item, tuple):
            run.append(item)
        else:
            yield item
    if run:
        yield _points(run)


def _points(run: list[_LoggedPoint]) -> Points:
    names = list(run[0][2])
    return Points(
        names=names,
        steps=[step for step, _, _ in run],
        times=[at for _, at, _ in run],
        values=[[float(scalars[name]) for _, _, scalars in run] for name in names],
    )


class RecipeLog:
    """What `trainyard.log` reaches from within a recipe: points. How far the training is, the loop itself tells."""

    def __init__(self, emitter: Emitter) -> None:
        self.scalars = emitter.log

    def progress(self, step: int, total_steps: int, epoch: int, epochs: int) -> None:
        """Nothing."""


def say(text: str) -> None:
    """One line of the process's log."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
