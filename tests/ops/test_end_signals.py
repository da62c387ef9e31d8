"""Processes that a signal ends: whenever it comes, and in whatever bursts, they notice and leave."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from orchestrator.embedded.supervisor import naming
from tests.e2e.stack import Stack
from tests.environment import ROOT, child_environment
from tests.waiting import wait_until

# Wait in short turns, as the loops do, while another process sends signals as fast as it can; two hundred times.
BURSTS = """
import os, signal, sys, time
from orchestrator.end_signals import EndSignals

for _ in range(200):
    end = EndSignals(signal.SIGUSR1)
    parent, sender = os.getpid(), os.fork()
    if not sender:
        for _ in range(40):
            os.kill(parent, signal.SIGUSR1)
        os._exit(0)
    while not end.wait(0.0005):
        pass
    assert end.is_set() and end.wait(60.0)
    os.waitpid(sender, 0)
print("left", flush=True)
"""

# After its start; another moment of each fifth of the time in which it comes up, in every run.
MOMENTS = [(fifth + random.random()) / 5 for fifth in range(5)]
COMES_UP_S, UP_COMES_UP_S = 1.0, 7.0
ENDS_WITHIN_S = 20.0


def test_two_hundred_bursts_are_noticed_each() -> None:
    done = subprocess.run([sys.executable, "-c", BURSTS], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("left\n", "")


@pytest.fixture(scope="module")
def idle_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """With `up` held, so that it starts nothing again that a test ends."""
    with Stack(tmp_path_factory.mktemp("signals"), nodes=1) as stack:
        stack.kill_process("node-1")  # what runs now has joined; what runs next is what runs ever after
        up = psutil.Process(stack.pid_of("redis")).parent()
        assert up is not None
        up.suspend()
        try:
            yield stack
        finally:
            up.resume()


def ends_whenever_it_comes(line: list[str], environment: dict[str, str], *, comes_up_s: float) -> None:
    for moment_s in [comes_up_s * moment for moment in MOMENTS]:
        process = subprocess.Popen(line, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        time.sleep(moment_s)
        process.send_signal(signal.SIGTERM)
        try:
            _, said = process.communicate(timeout=ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError(f"{line} did not end {ENDS_WITHIN_S} s after a signal at {moment_s:.3f} s") from None
        assert process.returncode in (0, -signal.SIGTERM, 128 + signal.SIGTERM), (moment_s, said.decode())


@pytest.mark.stack
@pytest.mark.parametrize("name", ["ingest", "sweep", "celery", "web", "node-1"])
def test_a_program_ends_whenever_the_signal_comes_after_its_start(idle_stack: Stack, name: str) -> None:
    running = psutil.Process(idle_stack.pid_of(name))
    line, environment = running.cmdline(), running.environ()
    os.kill(running.pid, signal.SIGTERM)
    wait_until(lambda: running.status() == psutil.STATUS_ZOMBIE, within_s=ENDS_WITHIN_S)
    ends_whenever_it_comes(line, environment, comes_up_s=COMES_UP_S)


@pytest.mark.stack
def test_up_ends_and_leaves_nothing_whenever_the_signal_comes_after_its_start(tmp_path: Path) -> None:
    line = [sys.executable, "manage.py", "up", "--data", str(tmp_path / "data"), "--port", "0", "--no-demo"]
    ends_whenever_it_comes(line, child_environment(), comes_up_s=UP_COMES_UP_S)
    wait_until(lambda: not naming(tmp_path), within_s=ENDS_WITHIN_S)
