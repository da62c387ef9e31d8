"""The supervisor with real, tiny processes: restarts, bounded ends, nothing left behind."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from orchestrator.embedded import supervisor as embedded_supervisor
from orchestrator.embedded.processes import ManagedProcess
from orchestrator.embedded.supervisor import Supervisor, left_behind
from tests.environment import ROOT
from tests.waiting import wait_until

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
)


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def supervisor(tmp_path: Path, said: list[str]) -> Iterator[Supervisor]:
    made = Supervisor(root=ROOT, logs=tmp_path / "logs", table=tmp_path / "processes.json", say=said.append)
    yield made
    made.stop(made.names())
    made.end_leftovers(tmp_path)


def managed(name: str, argv: list[str], stop_s: float = 5.0) -> ManagedProcess:
    return ManagedProcess(name, lambda: argv, dict(os.environ), stop_s=stop_s)


def running(tmp_path: Path) -> dict[str, int]:
    return json.loads((tmp_path / "processes.json").read_text())


def test_a_killed_child_is_started_again(supervisor: Supervisor, said: list[str], tmp_path: Path) -> None:
    supervisor.start(managed("web", SLEEP))
    first = running(tmp_path)["web"]
    os.kill(first, signal.SIGKILL)

    def restarted() -> bool:
        supervisor.tick()
        return running(tmp_path)["web"] != first

    wait_until(restarted)
    assert supervisor.failures("web") == 1
    assert said[0].startswith("web ended (killed by SIGKILL); starting it again in 0.5 s")


def test_a_child_that_keeps_ending_is_counted_and_its_words_are_kept(supervisor: Supervisor) -> None:
    supervisor.start(managed("sweep", [sys.executable, "-c", "print('no database'); raise SystemExit(3)"]))

    def failed() -> bool:
        supervisor.tick()
        return supervisor.failures("sweep") >= 1

    wait_until(failed)
    assert supervisor.log_tail("sweep") == "no database"


def test_a_log_that_grew_too_long_is_put_aside_at_the_next_start(
    supervisor: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded_supervisor, "LOG_LIMIT_BYTES", 10)
    (tmp_path / "logs" / "web.log").write_text("of an earlier run\n")
    supervisor.start(managed("web", SLEEP))
    assert (tmp_path / "logs" / "web.log.1").read_text() == "of an earlier run\n"
    assert supervisor.log_tail("web") == ""


def test_a_deaf_child_is_killed_when_its_time_is_over(supervisor: Supervisor, said: list[str], tmp_path: Path) -> None:
    supervisor.start(managed("ingest", [sys.executable, "-c", STUBBORN], stop_s=0.3))
    wait_until(lambda: supervisor.log_tail("ingest") == "deaf")
    process = psutil.Process(running(tmp_path)["ingest"])
    supervisor.stop(["ingest"])
    assert not process.is_running()
    assert said == ["ingest did not end within 0 s; killing it"]
    assert running(tmp_path) == {}


def test_leftovers_of_a_child_are_found_and_ended(supervisor: Supervisor, tmp_path: Path) -> None:
    forks = f"import os, subprocess; os.fork() or (os.setsid(), os.execv('{sys.executable}', {SLEEP!r}))"
    supervisor.start(managed("agent", [sys.executable, "-c", forks]))

    def orphaned() -> bool:
        return any(each.pid != running(tmp_path)["agent"] for each in psutil.Process().children())

    wait_until(orphaned)
    supervisor.stop(["agent"])
    assert left_behind(tmp_path)
    assert supervisor.end_leftovers(tmp_path) == 1
    assert not left_behind(tmp_path)


def test_children_end_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    parent_text = f"""
import os, time
from pathlib import Path
from orchestrator.embedded.processes import ManagedProcess
from orchestrator.embedded.supervisor import Supervisor
here = Path({str(tmp_path)!r})
one = Supervisor(root=here, logs=here / "logs", table=here / "processes.json", say=print)
one.start(ManagedProcess("web", lambda: {SLEEP!r}, dict(os.environ)))
time.sleep(600)
"""
    parent = subprocess.Popen([sys.executable, "-c", parent_text], cwd=ROOT)
    wait_until(lambda: (tmp_path / "processes.json").exists())
    child = psutil.Process(running(tmp_path)["web"])
    parent.kill()
    parent.wait()
    wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)
