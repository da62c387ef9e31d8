"""Submit → first step of the two-worker demo, warm, in seconds; beside the same gang from a bare shell script.

Ours begins when REST is asked for the job and ends when step 1 of the training was done (the time in the point itself):
web server, database, Celery, two agents, placement, TF_CONFIG and the warm processes are all in it. The floor is
`bare_gang.sh`: two fresh Python processes with a hand-written TF_CONFIG for the same model and data, timed to the end
of their first step. Rounds alternate.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measure import Line, quantile
from orchestrator.embedded import ports
from tests.e2e.stack import Stack
from tests.environment import ROOT

ROUNDS = 5
RECIPE = "digits_cnn"


def run() -> list[Line]:
    """Medians over the rounds; one unmeasured job of ours first, so that the agents' warm processes are there."""
    of_us, bare = [], []
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as home, Stack(Path(home)) as stack:
        ours(stack)
        for _ in range(ROUNDS):
            bare.append(_bare())
            of_us.append(ours(stack))
    return [
        Line(
            "submit → first step, 2 workers, warm (median)",
            "s",
            quantile(of_us, 0.5),
            quantile(bare, 0.5),
            "<= 0.2x, <= 0.6 s",
        )
    ]


def ours(stack: Stack) -> float:
    """Seconds from asking REST until step 1 was done."""
    begin = time.time()
    job = stack.submit(recipe=RECIPE, strategy="multi_worker_mirrored", workers=2, global_batch_size=64, epochs=1)
    stack.wait_for_job(job["id"], "succeeded")
    (series,) = stack.get(f"/jobs/{job['id']}/series", names="loss")["loss"]
    assert series["steps"][0] == 1, series["steps"][:3]
    return float(series["times"][0]) - begin


def _bare() -> float:
    script = ROOT / "benchmarks" / "bare_gang.sh"
    recipe = ROOT / "examples" / "recipes" / f"{RECIPE}.py"
    line = [str(script), sys.executable, str(recipe), str(ports.any_free()), str(ports.any_free())]
    begin = time.time()
    done = subprocess.run(line, check=True, capture_output=True, text=True, timeout=120)
    ends = [float(text.split()[1]) for text in done.stdout.splitlines() if text.startswith("first_step")]
    assert len(ends) == 2, done.stdout + done.stderr
    return max(ends) - begin
