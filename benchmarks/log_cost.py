"""What logging one point (4 scalars) costs the training process, in µs.

Ours is the product's emitter into a real spool, as the training loop calls it; beside it `trainyard.log`, as a program
does. The floor is the cheapest thing that could do the job: a deque and a thread that packs and writes what has
gathered every 50 ms. The peer is what a person writes by hand: one flushed JSON line per point. Calls are paced by
about 1 ms of matrix products, as a training step would; the whole cost comes from tight loops, flush included. Rounds
of all variants alternate in one process.
"""

import json
import struct
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import numpy as np

import trainyard
from benchmarks.measure import Line, quantile
from trainyard import telling
from worker_agent.trainer.emit import FLUSH_S, Emitter, RecipeLog, SpoolSink

NAMES = ("loss", "accuracy", "learning_rate", "grad_norm")
PEER = "JSON line"
PROGRAM = "trainyard.log"
ROUNDS = 12
PACED_POINTS = 250
TIGHT_POINTS = 4000

Log = Callable[[int], None]


class DequeFloor:
    """A deque append per point; a timed thread packs and writes."""

    def __init__(self, path: Path) -> None:
        self._pack = struct.Struct(f"<qd{len(NAMES)}d").pack
        self._queue: deque[tuple[int, float, tuple[float, ...]]] = deque()
        self._file = path.open("ab", buffering=0)
        threading.Thread(target=self._flush_in_time, daemon=True).start()

    def log(self, step: int) -> None:
        """One point."""
        self._queue.append((step, time.time(), (0.5, 0.9, 1e-3, 1.0)))

    def flush(self) -> None:
        """Write what has gathered."""
        points = [self._queue.popleft() for _ in range(len(self._queue))]
        if points:
            self._file.write(b"".join(self._pack(step, at, *values) for step, at, values in points))

    def _flush_in_time(self) -> None:
        while True:
            time.sleep(FLUSH_S)
            self.flush()


def run() -> list[Line]:
    """p50 and p99 of one paced call, and the whole cost per point of a tight loop with its flush."""
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder:
        emitter = Emitter(SpoolSink(Path(folder) / "spool", notify=""))
        telling.connect(RecipeLog(emitter))
        floor = DequeFloor(Path(folder) / "floor")
        lines = (Path(folder) / "lines").open("a")

        def json_line(step: int) -> None:
            values = dict(zip(NAMES, (0.5, 0.9, 1e-3, 1.0), strict=True))
            lines.write(json.dumps({"step": step, "at": time.time(), **values}) + "\n")
            lines.flush()

        variants: dict[str, tuple[Log, Callable[[], None]]] = {
            "ours": (
                lambda step: emitter.log(step, {"loss": 0.5, "accuracy": 0.9, "learning_rate": 1e-3, "grad_norm": 1.0}),
                emitter.flush,
            ),
            PROGRAM: (
                lambda step: trainyard.log(step, loss=0.5, accuracy=0.9, learning_rate=1e-3, grad_norm=1.0),
                emitter.flush,
            ),
            "floor": (floor.log, floor.flush),
            PEER: (json_line, lines.flush),
        }
        calls: dict[str, list[float]] = {name: [] for name in variants}
        whole: dict[str, list[float]] = {name: [] for name in variants}
        for number in range(ROUNDS):
            for name, (log, flush) in variants.items():
                calls[name] += _paced(log)
                whole[name].append(_tight(log, flush, TIGHT_POINTS))
            if number == 0:  # the first round warms caches and files
                calls = {name: [] for name in variants}
                whole = {name: [] for name in variants}
        telling.connect(None)
        emitter.close()
        lines.close()

    def line(what: str, values: dict[str, float], target: str) -> Line:
        return Line(
            what, "µs", values["ours"], values["floor"], target, {name: values[name] for name in (PROGRAM, PEER)}
        )

    return [
        line("log one point, p50", {name: quantile(found, 0.5) for name, found in calls.items()}, "<= 1"),
        line("log one point, p99", {name: quantile(found, 0.99) for name, found in calls.items()}, "<= 20"),
        line(
            "log one point, whole cost with flush",
            {name: quantile(found, 0.5) for name, found in whole.items()},
            "<= 10",
        ),
    ]


def _paced(log: Log) -> list[float]:
    matrix = np.random.default_rng(0).random((160, 160))
    took = []
    for step in range(PACED_POINTS):
        product = matrix
        for _ in range(4):
            product = product @ matrix * 1e-3
        begin = time.perf_counter()
        log(step)
        took.append((time.perf_counter() - begin) * 1e6)
    return took


def _tight(log: Log, flush: Callable[[], None], points: int) -> float:
    flush()
    begin = time.perf_counter()
    for step in range(points):
        log(step)
    flush()
    return (time.perf_counter() - begin) / points * 1e6
