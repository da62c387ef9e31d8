"""What a long history costs: an idle sweep and the pages that list or compare things, in ms of CPU.

Ours is an installation with 100,000 ended jobs and 500 nodes of 8 GPUs; the floor is the same sweep and the same pages
in an empty one, before anything was seeded. SQLite runs in the process that is measured, so its work counts.
"""

import json
import subprocess
import sys

from benchmarks.measure import Line
from tests.environment import ROOT, child_environment

JOBS = 100_000
TARGETS = {
    "sweep": "<= 5",
    "jobs": "<= 20",
    "jobs by a metric": "<= 60",
    "jobs by owner": "<= 60",
    "jobs with a tag": "<= 36",
    "overview": "<= 60",
    "nodes": "<= 100",
    "20 compared": "<= 300",
    "their curves": "<= 300",
}


def run() -> list[Line]:
    """Medians of a sweep and of each page."""
    line = [sys.executable, "-m", "benchmarks.bare.history", str(JOBS)]
    answer = subprocess.run(line, cwd=ROOT, env=child_environment(), check=True, capture_output=True, text=True)
    found = json.loads(answer.stdout.splitlines()[-1])
    return [
        Line(f"{name} after {JOBS:,} jobs, CPU", "ms", found["ours"][name], found["floor"][name], target)
        for name, target in TARGETS.items()
    ]
