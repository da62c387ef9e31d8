"""What waiting jobs cost: a pass over 1,000 of them, in CPU, and how fast 200 tiny ones get through, with the CPU that
they cost and the answers of REST meanwhile, to one who asks and to 8 who submit at once.

The floor of a pass is reading what they asked for, in one query. That of the 200, and of their CPU, is the same program
started 200 times by a bare pool, as many at a time as the cluster has devices; that of REST's answers the same request
when all is done. A few jobs before them start the zygotes.
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
NODES = ("node-1", "node-2")
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
    for each in [_submit(stack)[1] for _ in range(slots)]:
        stack.wait_for_job(each, "succeeded")
    before, began = _cpu_s(stack), time.monotonic()
    with ThreadPoolExecutor(CALLERS) as pool:
        submitted = list(pool.map(lambda _: _submit(stack), range(jobs)))
    ids = [job_id for _, job_id in submitted]
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
    alone = [_submit(stack)[0] for _ in range(10)]
    used = {name: (spent[name] - before[name]) / jobs * 1e3 for name in spent}
    bare_a_minute, bare_ms = _bare(jobs, slots)
    at_once = quantile([took_ms for took_ms, _ in submitted], 0.95)
    return [
        Line(f"{jobs} tiny jobs, a minute", "1", jobs / minutes, bare_a_minute, ">= 400"),
        Line("CPU of a tiny job", "ms", sum(used.values()), bare_ms, "-", peers=used),
        Line("REST p95 while they wait", "ms", quantile(answers, 0.95), quantile(idle, 0.95), "<= 200"),
        Line(f"POST /jobs, p95 of {CALLERS} at once", "ms", at_once, quantile(alone, 0.5), "< 1000"),
    ]


def _submit(stack: Stack) -> tuple[float, int]:
    """Milliseconds until REST answers, and the job's id."""
    code = {"filename": "count.py", "text": TINY}
    request = {"name": "tiny", "cluster": "local", "kind": "script", "strategy": "one_device", "code": code}
    began = time.perf_counter()
    job_id = int(stack.post("/jobs", request)["id"])
    return (time.perf_counter() - began) * 1e3, job_id


def _ask(stack: Stack, job_id: int) -> tuple[float, str]:
    """Milliseconds until REST answers, and how the job stands."""
    began = time.perf_counter()
    status = stack.get(f"/jobs/{job_id}")["status"]
    return (time.perf_counter() - began) * 1e3, status


def _cpu_s(stack: Stack) -> dict[str, float]:
    """Of each part so far: `agents` with their zygotes, `processes` those that zygotes forked and saw end."""
    control_plane = {name: psutil.Process(stack.pid_of(name)) for name in CONTROL_PLANE}
    agents = [psutil.Process(stack.pid_of(name)) for name in NODES]
    zygotes = [child for agent in agents for child in agent.children()]
    ended = sum(each.cpu_times().children_user + each.cpu_times().children_system for each in zygotes)
    spent = {name: _own_s(process) for name, process in control_plane.items()}
    return spent | {"agents": sum(map(_own_s, [*agents, *zygotes])), "processes": ended}


def _own_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _bare(jobs: int, at_once: int) -> tuple[float, float]:
    """How many a minute, and the milliseconds of CPU of each."""
    began, before = time.monotonic(), os.times()
    with ThreadPoolExecutor(at_once) as pool:
        start = partial(subprocess.run, [sys.executable, "-c", TINY], stdout=subprocess.DEVNULL, env=dict(os.environ))
        list(pool.map(lambda _: start(), range(jobs)))
    after = os.times()
    spent_s = after.children_user + after.children_system - before.children_user - before.children_system
    return jobs / (time.monotonic() - began) * 60, spent_s / jobs * 1e3
