"""Gangs of parameter servers whose rows come from Python, launched again and again: does one stand still?

`python -m tests.trainer.launches [--launches 50] [KIND …]` tells how many of each kind did,.
`test_parameter_server` launches some kinds once.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from time import monotonic
from typing import Any

from tests.trainer.gang import Gang, Zygote, gang
from worker_agent.protocol.states import Cause, Keras, Kind, Strategy

HERE = Path(__file__).parent
CHIEF = "chief:0"
WITHIN_S = 180.0
# A process that does not hear of its end is killed after 10 s.
ENDS_WITHIN_S = 30.0
_WAYS = (
    ("generator", "generator"),
    ("py_function", "py_function"),
    ("both", "generator"),
    ("generator", "py_function"),
)
RECIPES: dict[str, dict[str, Any]] = {
    f"{rows}-{validation}": {
        "recipe": HERE / "recipes/generated.py",
        "params": {"rows": rows, "validation": validation},
        "epochs": 5,
        "global_batch_size": 16,
    }
    for rows, validation in _WAYS
}
SCRIPTS: dict[str, dict[str, Any]] = {
    name: {"recipe": HERE / f"programs/generated_{name}.py", "program": Kind.SCRIPT, "keras": Keras.TF_KERAS}
    for name in ("loop", "fit")
}
KINDS = RECIPES | SCRIPTS


def trained(folder: Path, kind: str, zygote: Zygote, *, within_s: float = WITHIN_S) -> Gang:
    """A gang of that kind that has trained to its end. One that stands still is ended, and raises `AssertionError`."""
    job = gang(folder, strategy=Strategy.PARAMETER_SERVER, workers=2, ps=1, **KINDS[kind]).start(zygote)
    try:
        job.wait(within_s, names=[CHIEF])
    finally:
        job.stop()
        job.wait(ENDS_WITHIN_S)
    ending = job[CHIEF].exit()
    assert ending is not None
    assert ending.cause is Cause.COMPLETED, job[CHIEF].log()[-3000:]
    return job


def main() -> int:
    """Launch each kind so often; 1 where a gang did not come to its end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", choices=[[], *KINDS], help=", ".join(KINDS))
    parser.add_argument("--launches", type=int, default=50, help="of each kind")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="launches-"))
    zygote = Zygote(folder, Keras.TF_KERAS.value)
    failed = 0
    try:
        zygote.wait_ready()
        for kind in args.kinds or KINDS:
            for number in range(args.launches):
                began = monotonic()
                try:
                    trained(folder / f"{kind}-{number}", kind, zygote)
                    said = "trained"
                except AssertionError as error:
                    failed += 1
                    said = str(error)
                sys.stdout.write(f"{kind} {number}: {said} after {monotonic() - began:.1f} s\n")
                sys.stdout.flush()
    finally:
        zygote.close()
    sys.stdout.write(f"{failed} did not come to their end; {folder}\n")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
