"""Where a process that hangs stands: one that answers, one that is suspended, one that has never heard of us."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.waiting import wait_until
from worker_agent.protocol.states import Role
from worker_agent.replica import stacks
from worker_agent.replica.stacks import Thread

PROGRAM = """
import sys, threading, time
from pathlib import Path
from worker_agent.replica import stacks

begun = threading.Event()

def waits_for_a_peer():
    begun.wait()
    print("up", flush=True)
    time.sleep(60)

def reads_ahead():
    begun.set()
    time.sleep(60)

if sys.argv[2] == "listens":
    stacks.listen(Path(sys.argv[1]))
threading.Thread(target=reads_ahead, daemon=True).start()
waits_for_a_peer()
"""

Start = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Begin a process that stands still; returns once it does."""
    started: list[subprocess.Popen[str]] = []

    def begin(how: str) -> subprocess.Popen[str]:
        line = [sys.executable, "-c", PROGRAM, str(tmp_path), how]
        process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def take(process: subprocess.Popen[str], folder: Path) -> tuple[str, str]:
    """What was found, and what was written."""
    path = folder / stacks.artifact_name(Role.WORKER, 1)
    found = stacks.collect(process.pid, folder=folder, path=path, why="It hangs.")
    assert path.name == "stacks-worker-1.txt"
    return found, path.read_text()


def test_every_thread_of_a_process_that_answers(start: Start, tmp_path: Path) -> None:
    process = start("listens")
    found, text = take(process, tmp_path)
    assert found == ""
    assert text.startswith(f"Process {process.pid}, taken ")
    assert "It hangs." in text.partition("\n")[0]
    assert "in waits_for_a_peer" in text
    assert "in reads_ahead" in text
    kernel = text.partition(f"== Kernel: process {process.pid} ==\n")[2]
    assert kernel.startswith(("S (sleeping)", "R (running)"))  # running: the dump has just been written
    assert kernel.count("python") >= 2
    assert process.poll() is None


def test_a_second_time_shows_only_what_is_new(start: Start, tmp_path: Path) -> None:
    process = start("listens")
    take(process, tmp_path)
    assert take(process, tmp_path)[1].count("in waits_for_a_peer") == 1


def test_a_suspended_process_is_looked_at_as_it_is_and_then_answers(start: Start, tmp_path: Path) -> None:
    process = start("listens")
    process.send_signal(signal.SIGSTOP)
    _wait_for_state(process.pid, psutil.STATUS_STOPPED)
    found, text = take(process, tmp_path)
    assert found == "the process was suspended by a signal (state T)."
    assert found in text
    assert "The process was suspended and could not answer; these are its first words" in text
    assert "in waits_for_a_peer" in text
    assert "T (suspended by a signal)" in text


def test_what_py_spy_says_is_added_without_the_command_line(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It prints what the real one does."""
    process = start("listens")
    spy = tmp_path / "bin" / "py-spy"
    spy.parent.mkdir()
    spy.write_text('#!/bin/sh\necho "Process $4: python --key canary"; echo "Python v3.11.7"; echo "Thread 1: waits"\n')
    spy.chmod(0o755)
    monkeypatch.setenv("PATH", f"{spy.parent}:{os.environ['PATH']}")
    _, text = take(process, tmp_path)
    assert "== Python, by py-spy ==\nPython v3.11.7\nThread 1: waits\n" in text
    assert "canary" not in text


def test_a_process_that_was_never_told_of_the_signal_lives_on(start: Start, tmp_path: Path) -> None:
    process = start("does not")
    found, text = take(process, tmp_path)
    assert (found, process.poll()) == ("", None)
    assert "It was not ready to tell" in text
    assert "== Kernel" in text


def test_a_process_that_is_gone_leaves_nothing_to_write(start: Start, tmp_path: Path) -> None:
    process = start("listens")
    process.kill()
    process.wait()
    assert stacks.collect(process.pid, folder=tmp_path, path=tmp_path / "none", why="") == ""
    assert not (tmp_path / "none").exists()


def test_the_signal_is_nobody_elses() -> None:
    assert signal.SIGRTMIN < stacks.SIGNAL < signal.SIGRTMAX
    assert signal.getsignal(stacks.SIGNAL) is signal.SIG_DFL


def test_threads_at_the_same_place_are_told_together() -> None:
    at = ("S", "futex_wait_queue", "[<0>] futex_wait_queue+0x1\n[<0>] do_futex+0x2")
    text = stacks.describe([Thread(1, "python", *at), Thread(2, "tf_Compute", *at), Thread(3, "nfs", "D", "", "")])
    assert text == (
        "S (sleeping), in futex_wait_queue: python (1), tf_Compute (2)\n"
        "    [<0>] futex_wait_queue+0x1\n"
        "    [<0>] do_futex+0x2\n"
        "D (waiting in the kernel, cannot be interrupted): nfs (3)"
    )
    assert stacks.describe([]) == "It is gone."


def test_the_threads_of_this_process() -> None:
    (main,) = [thread for thread in stacks.threads_of(os.getpid()) if thread.tid == os.getpid()]
    assert main.state == "R"
    assert stacks.threads_of(2**22 + 1) == []


def _wait_for_state(pid: int, state: str) -> None:
    wait_until(lambda: psutil.Process(pid).status() == state)
