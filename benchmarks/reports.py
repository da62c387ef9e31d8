"""What it costs to take in what nodes report: live points of many processes, heartbeats of many agents, in CPU.

Ours is the one ingest process: signatures, records, database, acknowledgements, pages' events. The floor takes the same
entries through the same Redis and writes as many rows as nothing simpler could avoid. Both alternate tick by tick.
"""

import json
import subprocess
import sys
from functools import partial

from benchmarks.measure import Line
from tests.environment import ROOT, child_environment

QUICK = 5


def run(*, shorter: int = 1) -> list[Line]:
    """Points of 50 processes at 20 flushes a second, beats of agents without GPUs and with 8, the longest step."""
    line = [sys.executable, "-m", "benchmarks.bare.reports", str(shorter)]
    answer = subprocess.run(line, cwd=ROOT, env=child_environment(), check=True, capture_output=True, text=True)
    found = json.loads(answer.stdout.splitlines()[-1])
    points, bare, gpus = found["points"], found["beats_0"], found["beats_8"]
    longest_s = max(each["longest_s"] for each in found.values())
    return [
        Line("live points of 50 processes, CPU a million", "s", points["ours"], points["floor"], "<= 30"),
        Line("heartbeat, CPU", "us", bare["ours"], bare["floor"], "<= 60"),
        Line("heartbeat with 8 GPUs, CPU", "us", gpus["ours"], gpus["floor"], "<= 100"),
        Line("longest step of ingest, CPU", "s", longest_s, 0.0, "<= 0.2"),
    ]


quick = partial(run, shorter=QUICK)
