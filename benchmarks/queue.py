"""What waiting jobs cost: a pass over 1,000 of them, in CPU, and how fast 200 tiny ones get through, with the control
plane's CPU and the answers of REST meanwhile.

The floor of a pass is reading what they asked for, in one query. That of the 200 is the same program started 200 times
by a bare pool, as many at a time as the cluster has devices; that of REST's answers the same request when all is done.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import psutil

from benchmarks.measure import Line, quantile
from tests.e2e.stack import TERMINAL, Stack
from tests.environment import ROOT, child_environment

JOBS = 200
CALLERS = 8
WITHIN_S = 600
ASKED_EVERY_S = 0.2
CONTROL_PLANE = ("web", "celery", "sweep", "ingest")
TINY = "import time\nfor number in range(5):\n    print('count', number, flush=True)\n    time.sleep(0.02)\n"


def run(*, jobs: int = JOBS) -> list[Line]:
    """A pass, then the jobs."""
    line = [sys.executable, "-m", "benchmarks.bare.queue"]
    answer = subprocess.run(line, cwd=ROOT, env=child_environment(), check=True, capture_output=True, text=True)
    found = json.loads(answer.stdout.splitlines()[-1])
    lines = [Line("a pass over 1,000 waiting jobs, CPU", "ms", found["ours"], found["floor"], "<= 100")]
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as home, Stack(Path(home)) as stack:
        return lines + _through(stack, jobs)


quick = partial(run, jobs=40)


def _through(stack: Stack, jobs: int) -> list[Line]:
    slots = sum(len(node["devices"]) for node in stack.get("/nodes"))
    before, began = _cpu_s(stack), time.monotonic()
    with ThreadPoolExecutor(CALLERS) as pool:
        ids = list(pool.map(lambda _: _submit(stack), range(jobs)))
    answers: list[float] = []
    left = sorted(ids)
    while left and time.monotonic() - began < WITHIN_S:
        took_ms, status = _ask(stack, left[0])
        answers.append(took_ms)
        if status in TERMINAL:
            del left[0]
        else:
            time.sleep(ASKED_EVERY_S)
    minutes, spent = (time.monotonic() - began) / 60, _cpu_s(stack)
    assert not left, f"{len(left)} of {jobs} have not ended"
    idle = [_ask(stack, ids[0])[0] for _ in range(50)]
    used = {name: round(spent[name] - before[name], 1) for name in CONTROL_PLANE}
    total = sum(used.values())
    return [
        Line(f"{jobs} tiny jobs, a minute", "1", jobs / minutes, _bare_a_minute(jobs, slots), ">= 400"),
        Line(f"{jobs} tiny jobs, CPU of the control plane", "s", total, 0.0, "-", peers=used),
        Line("REST p95 while they wait", "ms", quantile(answers, 0.95), quantile(idle, 0.95), "<= 200"),
    ]


def _submit(stack: Stack) -> int:
    code = {"filename": "count.py", "text": TINY}
    request = {"name": "tiny", "cluster": "local", "kind": "script", "strategy": "one_device", "code": code}
    return int(stack.post("/jobs", request)["id"])


def _ask(stack: Stack, job_id: int) -> tuple[float, str]:
    """Milliseconds until REST answers, and how the job stands."""
    began = time.perf_counter()
    status = stack.get(f"/jobs/{job_id}")["status"]
    return (time.perf_counter() - began) * 1e3, status


def _cpu_s(stack: Stack) -> dict[str, float]:
    times = {name: psutil.Process(stack.pid_of(name)).cpu_times() for name in CONTROL_PLANE}
    return {name: each.user + each.system for name, each in times.items()}


def _bare_a_minute(jobs: int, at_once: int) -> float:
    began = time.monotonic()
    with ThreadPoolExecutor(at_once) as pool:
        start = partial(subprocess.run, [sys.executable, "-c", TINY], stdout=subprocess.DEVNULL, env=dict(os.environ))
        list(pool.map(lambda _: start(), range(jobs)))
    return jobs / (time.monotonic() - began) * 60
