"""`make bench`: ours beside a floor measured in the same interleaved run. `python -m benchmarks [--quick] [NAME ...]`.

Read ratios, not milliseconds: the machine is shared and small.
"""

import argparse
import os
from collections.abc import Callable, Iterable
from functools import partial

from benchmarks import first_step, history, idle_memory, log_cost, loop, point_latency, queue, reports
from benchmarks.measure import HEAD, Line
from benchmarks.sampling import whole_runs

BENCHMARKS: dict[str, Callable[[], Iterable[Line]]] = {
    "log_cost": log_cost.run,
    "point_latency": point_latency.run,
    "first_step": first_step.run,
    "history": history.run,
    "idle_memory": idle_memory.run,
    "queue": queue.run,
    "reports": reports.run,
    "fleet": reports.fleet,
    "loop": loop.run,
    "sampling": whole_runs.run,
}
QUICK: dict[str, Callable[[], Iterable[Line]]] = {
    "point_latency": partial(point_latency.run, rounds=1),
    "queue": queue.quick,
    "reports": reports.quick,
    "fleet": reports.quick_fleet,
    "loop": partial(loop.run, rounds=loop.ROUNDS_QUICK),
    "sampling": partial(whole_runs.run, rounds=whole_runs.ROUNDS_QUICK),
}


def main() -> None:
    """Run the named benchmarks (all by default) and print one table."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--quick", action="store_true", help=f"fewer rounds, in: {', '.join(QUICK)}")
    given = parser.parse_args()
    names = given.names or list(BENCHMARKS)
    chosen = BENCHMARKS | QUICK if given.quick else BENCHMARKS
    unknown = sorted(set(names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"no benchmark named {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{os.cpu_count()} cores, load before {load}\n{HEAD}", flush=True)
    for name in names:
        for line in chosen[name]():
            print(line.text(), flush=True)


if __name__ == "__main__":
    main()
