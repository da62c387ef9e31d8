"""Processes that a signal ends: whenever it comes, and in whatever bursts, they notice and leave."""

import subprocess
import sys

from tests.environment import ROOT

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


def test_two_hundred_bursts_are_noticed_each() -> None:
    done = subprocess.run([sys.executable, "-c", BURSTS], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("left\n", "")
