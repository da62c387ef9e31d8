"""What an idle installation with two agents holds, in MB, and how much later the first job after that begins.

RSS counts a page once for each process that maps it, PSS shares it among them; both are summed over `make up` and all
that it has started. Ours is measured when the agents have let go of TensorFlow; beside it stands the same installation
a moment earlier, when they still held it. The floor is as many Python processes that have imported Django and Celery
and do nothing. The first job after the pause stands beside one that came at once.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil

from benchmarks import first_step
from benchmarks.measure import Line
from tests.e2e.stack import Stack, until

# Long enough to begin one job after the other.
ZYGOTE_IDLE_S = 15
LET_GO_WITHIN_S = 180.0
BARE = "import celery, django.core.management, django.db.models, sys; print(1, flush=True); sys.stdin.read()"


def run() -> list[Line]:
    """One installation, measured before and after."""
    with (
        tempfile.TemporaryDirectory(prefix="trainyard-bench-") as home,
        Stack(Path(home), settings={"ZYGOTE_IDLE_S": ZYGOTE_IDLE_S}) as stack,
    ):
        first_step.ours(stack)
        at_once = first_step.ours(stack)
        held = _started(stack)
        with_zygotes = _memory(held)
        until(lambda: not any(map(_is_zygote, _started(stack))), within_s=LET_GO_WITHIN_S)
        idle = _started(stack)
        without = _memory(idle)
        floor = _bare(len(idle))
        after_a_pause = first_step.ours(stack)
    return [
        *(
            Line(f"idle `make up`, {kind}", "MB", *each, "<= 1200", {"TensorFlow kept": kept})
            for kind, kept, *each in zip(("RSS", "PSS"), with_zygotes, without, floor, strict=True)
        ),
        Line("submit → first step after a pause (floor: at once)", "s", after_a_pause, at_once, "-"),
    ]


def _started(stack: Stack) -> list[psutil.Process]:
    """`up` and all that runs below it."""
    up = psutil.Process(stack.pid_of("web")).parent()
    assert up is not None
    return [up, *up.children(recursive=True)]


def _is_zygote(process: psutil.Process) -> bool:
    try:
        return "worker_agent.trainer.zygote" in process.cmdline()
    except psutil.NoSuchProcess:
        return False


def _memory(processes: list[psutil.Process]) -> tuple[float, float]:
    """RSS and PSS in MB."""
    found = [process.memory_full_info() for process in processes]
    return sum(each.rss for each in found) / 1e6, sum(each.pss for each in found) / 1e6


def _bare(count: int) -> tuple[float, float]:
    line = [sys.executable, "-c", BARE]
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "none"}
    started = [
        subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) for _ in range(count)
    ]
    try:
        for each in started:
            assert each.stdout is not None
            assert each.stdout.readline()
        return _memory([psutil.Process(each.pid) for each in started])
    finally:
        for each in started:
            each.communicate()
