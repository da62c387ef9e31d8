"""What logging one point (4 scalars) costs the training process, in µs.

Ours is the product's emitter into a real spool, as the training loop calls it; beside it `trainyard.log`, as a program
does. The floor is the least that keeps a point: its step, its time and its scalars appended to a list, packed and
written with the flush. The peer is what a person writes by hand: one flushed JSON line per point.

Paced calls come after about 1 ms of arithmetic on 4 MiB each, as after a training step, so they find cold caches: a
call that does nothing (`NOTHING`) says how much of the figure that is. The variants take turns call by call. The whole
cost comes from tight loops, flush included. All in one process.
"""

import json
import struct
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

import trainyard
from benchmarks.measure import Line, quantile
from trainyard import telling
from worker_agent.trainer.emit import Emitter, RecipeLog, SpoolSink

PEER = "JSON line"
PROGRAM = "trainyard.log"
NOTHING = "an empty call"
ROUNDS = 12
PACED_POINTS = 1000
TIGHT_POINTS = 4000

Log = Callable[[int], None]


class ListFloor:
    """A list append per point; the flush packs and writes."""

    def __init__(self, path: Path) -> None:
        self._pack = struct.Struct("<qd4d").pack
        self._points: list[tuple[int, float, dict[str, float]]] = []
        self._file = path.open("ab", buffering=0)

    def log(self, step: int, scalars: dict[str, float]) -> None:
        """One point."""
        self._points.append((step, time.time(), scalars))

    def flush(self) -> None:
        """Write what has gathered."""
        points, self._points = self._points, []
        self._file.write(b"".join(self._pack(step, at, *scalars.values()) for step, at, scalars in points))


def run() -> list[Line]:
    """p50 and p99 of one paced call, and the whole cost per point of a tight loop with its flush."""
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder:
        emitter = Emitter(SpoolSink(Path(folder) / "spool", notify=""))
        telling.connect(RecipeLog(emitter))
        floor = ListFloor(Path(folder) / "floor")
        lines = (Path(folder) / "lines").open("a")

        def json_line(step: int) -> None:
            lines.write(json.dumps({"step": step, "at": time.time(), **_scalars()}) + "\n")
            lines.flush()

        variants: dict[str, tuple[Log, Callable[[], None]]] = {
            "ours": (lambda step: emitter.log(step, _scalars()), emitter.flush),
            PROGRAM: (lambda step: trainyard.log(step, **_scalars()), emitter.flush),
            "floor": (lambda step: floor.log(step, _scalars()), floor.flush),
            PEER: (json_line, lines.flush),
            NOTHING: (lambda step: None, lambda: None),
        }
        _paced(variants, PACED_POINTS // 10)  # warms caches and files
        calls = _paced(variants, PACED_POINTS)
        whole: dict[str, list[float]] = {name: [] for name in variants}
        for _ in range(ROUNDS):
            for name, (log, flush) in variants.items():
                whole[name].append(_tight(log, flush, TIGHT_POINTS))
        telling.connect(None)
        emitter.close()
        lines.close()

    def line(what: str, values: dict[str, float], target: str) -> Line:
        return Line(
            what,
            "µs",
            values["ours"],
            values["floor"],
            target,
            {name: values[name] for name in (PROGRAM, PEER, NOTHING)},
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


def _scalars() -> dict[str, float]:
    return {"loss": 0.5, "accuracy": 0.9, "learning_rate": 1e-3, "grad_norm": 1.0}


def _paced(variants: Mapping[str, tuple[Log, object]], points: int) -> dict[str, list[float]]:
    """Of each variant, what each of so many calls took."""
    numbers = np.zeros(1 << 19)  # 4 MiB
    took: dict[str, list[float]] = {name: [] for name in variants}
    for step in range(points):
        for name, (log, _) in variants.items():
            for _ in range(4):
                numbers += 1.0
            begin = time.perf_counter()
            log(step)
            took[name].append((time.perf_counter() - begin) * 1e6)
    return took


def _tight(log: Log, flush: Callable[[], None], points: int) -> float:
    flush()
    begin = time.perf_counter()
    for step in range(points):
        log(step)
    flush()
    return (time.perf_counter() - begin) / points * 1e6
