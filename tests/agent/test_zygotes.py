"""Which zygotes an agent keeps: started again when they die, let go when they are of no use, back when expected."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.plans import make_launch, make_spec
from tests.waiting import wait_until
from worker_agent.daemon import zygotes
from worker_agent.daemon.zygotes import DEATHS_MAX, Zygote, Zygotes
from worker_agent.protocol.states import Keras


class Started:
    """Stand-ins for zygotes: each ends with the status that is set when it is started, at once."""

    def __init__(self) -> None:
        self.status = 0
        self.options: list[tuple[str, ...]] = []
        self.processes: list[subprocess.Popen[bytes]] = []

    def __call__(self, module: str, *options: str, output: Path) -> subprocess.Popen[bytes]:
        self.options.append(options)
        process = subprocess.Popen([sys.executable, "-c", f"import sys; sys.exit({self.status})"])
        self.processes.append(process)
        return process

    def end(self) -> None:
        """Wait until the latest has ended."""
        self.processes[-1].wait(10)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    found = Started()
    monkeypatch.setattr(zygotes, "_start", found)
    yield found
    for process in found.processes:
        process.wait(10)


def test_one_that_ended_because_it_was_of_no_use_comes_back_when_asked_for_only(
    tmp_path: Path, started: Started
) -> None:
    zygote = Zygote(tmp_path, Keras.KERAS3, idle_s=5.0)
    for times in range(1, DEATHS_MAX + 3):
        assert zygote.ensure_running()
        started.end()
        zygote.revive()
        assert not zygote.is_running
        assert len(started.processes) == times
    assert started.options[0][-2:] == ("--idle", "5.0")


def test_one_that_dies_is_started_again_a_few_times(tmp_path: Path, started: Started) -> None:
    started.status = 1
    zygote = Zygote(tmp_path, Keras.KERAS3)
    zygote.ensure_running()
    for _ in range(DEATHS_MAX + 2):
        started.end()
        zygote.revive()
    assert len(started.processes) == DEATHS_MAX
    assert not zygote.ensure_running()


def test_the_usual_one_is_there_from_the_beginning(tmp_path: Path, started: Started) -> None:
    kept = Zygotes(tmp_path, enabled=True)
    kept.start()
    wait_until(lambda: started.processes, within_s=10)
    kept.close()
    assert [options[1] for options in started.options] == ["keras3"]


def test_a_launch_that_imports_for_itself_waits_for_no_zygote(
    tmp_path: Path, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zygotes, "_start_cold", lambda plan: 77)
    kept = Zygotes(tmp_path, enabled=True)
    for spec in (make_spec(env={"TF_ENABLE_ONEDNN_OPTS": "0"}), make_spec(requirements=["einops"])):
        launch = make_launch(spec=spec)
        kept.expect(launch)
        assert kept.start_shim(tmp_path / "plan.json", launch, wait=lambda s: True) == 77
    assert not started.processes
    kept.expect(make_launch())
    assert len(started.processes) == 1


def test_a_job_that_may_come_brings_back_the_one_it_would_need(tmp_path: Path, started: Started) -> None:
    kept = Zygotes(tmp_path, enabled=True)
    kept.warm(Keras.TF_KERAS)
    assert [options[1] for options in started.options] == ["tf_keras"]
    Zygotes(tmp_path, enabled=False).warm(Keras.TF_KERAS)
    assert len(started.options) == 1


def test_who_asks_one_that_is_just_leaving_gets_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has closed its door long after its start, and its process is still there for a moment."""
    zygote = Zygote(tmp_path, Keras.KERAS3)
    answers = "import socket; s = socket.socket(socket.AF_UNIX); s.bind({!r}); s.listen(); c = s.accept()[0]; "
    answers += "c.recv(99); c.sendall(b'4711\\n')"
    programs = iter(["import time; time.sleep(0.5)", answers.format(zygote._socket)])
    monkeypatch.setattr(zygotes, "_start", lambda *_, output: subprocess.Popen([sys.executable, "-c", next(programs)]))
    zygote.ensure_running()
    zygote._started_at -= 2 * zygotes.READY_S
    assert zygote.fork(tmp_path / "plan.json", wait=lambda s: bool(time.sleep(s))) == 4711
    zygote.close()


@pytest.mark.parametrize(("gigabytes", "idle_s"), [(8, 600.0), (63, 600.0), (64, 0.0), (512, 0.0)])
def test_who_has_much_memory_keeps_it(gigabytes: int, idle_s: float) -> None:
    assert zygotes.default_idle_s(memory_bytes=gigabytes * 10**9) == idle_s
