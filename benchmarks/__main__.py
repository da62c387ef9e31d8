"""`make bench`: ours beside a floor measured in the same interleaved run. `python -m benchmarks [NAME ...]`.

Read ratios, not milliseconds: the machine is shared and small.
"""

import argparse
import os
from collections.abc import Callable

from benchmarks import first_step, log_cost, point_latency
from benchmarks.measure import HEAD, Line

BENCHMARKS: dict[str, Callable[[], list[Line]]] = {
    "log_cost": log_cost.run,
    "point_latency": point_latency.run,
    "first_step": first_step.run,
}


def main() -> None:
    """Run the named benchmarks (all by default) and print one table."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    names = parser.parse_args().names or list(BENCHMARKS)
    unknown = sorted(set(names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"no benchmark named {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{os.cpu_count()} cores, load before {load}\n{HEAD}", flush=True)
    for name in names:
        for line in BENCHMARKS[name]():
            print(line.text(), flush=True)


if __name__ == "__main__":
    main()
