"""A program within limits: its status, its time, its memory, and nothing of it left."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import wait_until
from worker_agent.machine.processes import identify
from worker_agent.machine.sandbox import TIMED_OUT


def in_sandbox(program: str, *, time_s: float = 30.0, memory_bytes: int = 1 << 30) -> subprocess.CompletedProcess[str]:
    limits = ["--time-s", str(time_s), "--memory-bytes", str(memory_bytes)]
    command = [sys.executable, "-m", "worker_agent.machine.sandbox", *limits, "--", sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


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


def test_it_ends_with_whoever_started_it(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    program = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    limits = ["--time-s", "60", "--memory-bytes", str(1 << 30)]
    command = [sys.executable, "-m", "worker_agent.machine.sandbox", *limits, "--", sys.executable, "-c", program]
    agent = subprocess.Popen([sys.executable, "-c", f"import subprocess; subprocess.run({command!r})"])
    wait_until(lambda: pid.exists() and pid.read_text())
    agent.kill()
    agent.wait()
    wait_until(lambda: identify(int(pid.read_text())) is None)


def test_it_stands_behind_everything_else_and_has_no_network_where_that_can_be() -> None:
    said = in_sandbox("import os; print(os.nice(0), open('/proc/self/oom_score_adj').read().strip())").stdout.split()
    assert said == ["19", "1000"]
    done = in_sandbox("import os, socket; print(os.environ.get('TRAINYARD_NO_NETWORK'), len(socket.if_nameindex()))")
    flag, interfaces = done.stdout.split()
    assert flag == "None" or interfaces == "1", "the loopback alone"
