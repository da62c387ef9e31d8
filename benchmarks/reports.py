"""What it costs to take in what nodes report: live points of many processes, heartbeats of many agents, in CPU.

Ours is the one ingest process: signatures, records, database, acknowledgements, pages' events. The floor takes the same
entries through the same Redis and writes as many rows as nothing simpler could avoid. Both alternate tick by tick.

`fleet` has agents that beat evenly spread against the loop of `manage.py ingest` in a process of its own. Its floor is
that of all beats of a second at once: what small batches cost is in ours alone.
"""

import json
import subprocess
import sys
from functools import partial
from typing import Any

from benchmarks.measure import Line
from tests.environment import ROOT, child_environment

QUICK = 5
FLEET_S = 30
FLEET_QUICK_S = 10


def run(*, shorter: int = 1) -> list[Line]:
    """Points of 50 processes at 20 flushes a second, beats of agents without GPUs and with 8, the longest step."""
    found = _figures("reports", shorter)
    points, bare, gpus = found["points"], found["beats_0"], found["beats_8"]
    longest_s = max(each["longest_s"] for each in found.values())
    return [
        Line("live points of 50 processes, CPU a million", "s", points["ours"], points["floor"], "<= 30"),
        Line("heartbeat, CPU", "us", bare["ours"], bare["floor"], "<= 60"),
        Line("heartbeat with 8 GPUs, CPU", "us", gpus["ours"], gpus["floor"], "<= 100"),
        Line("longest step of ingest, CPU", "s", longest_s, 0.0, "<= 0.2"),
    ]


def fleet(*, seconds: int = FLEET_S) -> list[Line]:
    """A thousand agents without GPUs and with 8 each, then ten thousand."""
    few, gpus, many = (_figures("fleet", agents, gpus, seconds) for agents, gpus in ((1000, 0), (1000, 8), (10_000, 0)))
    return [
        Line("heartbeat of 1,000 agents, CPU", "us", few["ours_us"], few["floor_us"], "<= 60"),
        Line("heartbeat of 1,000 agents with 8 GPUs, CPU", "us", gpus["ours_us"], gpus["floor_us"], "<= 100"),
        Line("10,000 agents, share of a core", "", many["cores"], many["floor_us"] * 10_000 / 1e6, "<= 0.5"),
        Line("10,000 agents, beats stored a second", "", many["stored_per_s"], 0.0, ">= 10000"),
        Line("longest step of ingest with 10,000, CPU", "s", many["longest_s"], 0.0, "<= 0.2"),
    ]


def _figures(name: str, *arguments: int) -> Any:
    line = [sys.executable, "-m", f"benchmarks.bare.{name}", *map(str, arguments)]
    answer = subprocess.run(line, cwd=ROOT, env=child_environment(), check=True, capture_output=True, text=True)
    return json.loads(answer.stdout.splitlines()[-1])


quick = partial(run, shorter=QUICK)
quick_fleet = partial(fleet, seconds=FLEET_QUICK_S)
