"""A program within limits."""

import subprocess
import sys

CONFINED = """
from worker_agent.machine.sandbox import confine
offline = confine(time_s=30, memory_bytes=1 << 30, nice=19)
"""


def confined(program: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", CONFINED + program]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_memory_is_limited() -> None:
    assert "MemoryError" in confined("b'x' * (1 << 31)").stderr


def test_it_stands_behind_everything_else_and_has_no_network_where_that_can_be() -> None:
    said = confined("import os; print(os.nice(0), open('/proc/self/oom_score_adj').read().strip())").stdout.split()
    assert said == ["19", "1000"]
    offline, interfaces = confined("import socket; print(offline, len(socket.if_nameindex()))").stdout.split()
    assert offline == "False" or interfaces == "1", "the loopback alone"
