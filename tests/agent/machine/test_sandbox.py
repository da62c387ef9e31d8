"""A program within limits: its status, its time, its memory, and nothing of it left."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import wait_until
from worker_agent.machine.processes import identify
from worker_agent.machine.sandbox import TIMED_OUT

SANDBOX = """
import os, socket, sys
from worker_agent.machine import sandbox

def become(environment):
    os.execve(sys.executable, [sys.executable, "-c", sys.argv[2]], environment)

line = socket.socket(fileno=os.dup(0))
limits = {"time_s": float(sys.argv[1]), "memory_bytes": 1 << 30, "nice": 19}
sys.exit(sandbox.run(become, os.environ, line, **limits))
"""


def in_sandbox(program: str, *, time_s: float = 30.0) -> subprocess.CompletedProcess[str]:
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-c", SANDBOX, str(time_s), program]
    with ours, theirs:
        return subprocess.run(command, stdin=theirs, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("program", "code"), [("", 0), ("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 11)", 128 + 11)]
)
def test_it_leaves_as_the_program_does(program: str, code: int) -> None:
    assert in_sandbox(program).returncode == code


def test_a_program_that_does_not_end_is_ended() -> None:
    assert in_sandbox("import time; time.sleep(60)", time_s=1.0).returncode == TIMED_OUT


def test_memory_is_limited() -> None:
    assert "MemoryError" in in_sandbox("b'x' * (1 << 31)").stderr


def test_nothing_that_it_started_runs_on_in_whatever_session(tmp_path: Path) -> None:
    program = f"""
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        open({str(tmp_path / "pid")!r}, "w").write(str(os.getpid()))
        time.sleep(60)
    os._exit(0)
while not os.path.exists({str(tmp_path / "pid")!r}) or not open({str(tmp_path / "pid")!r}).read():
    time.sleep(0.01)
"""
    assert in_sandbox(program).returncode == 0
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text()}").exists()


def test_it_ends_with_whoever_waits_for_it(tmp_path: Path) -> None:
    """Whose end of the line closes, however that ended."""
    pid = tmp_path / "pid"
    program = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    ours, theirs = socket.socketpair()
    with theirs, subprocess.Popen([sys.executable, "-c", SANDBOX, "60", program], stdin=theirs) as process:
        wait_until(lambda: pid.exists() and pid.read_text())
        ours.close()
    assert process.returncode == TIMED_OUT
    assert identify(int(pid.read_text())) is None


def test_it_stands_behind_everything_else_and_has_no_network_where_that_can_be() -> None:
    said = in_sandbox("import os; print(os.nice(0), open('/proc/self/oom_score_adj').read().strip())").stdout.split()
    assert said == ["19", "1000"]
    done = in_sandbox("import os, socket; print(os.environ.get('TRAINYARD_NO_NETWORK'), len(socket.if_nameindex()))")
    flag, interfaces = done.stdout.split()
    assert flag == "None" or interfaces == "1", "the loopback alone"
