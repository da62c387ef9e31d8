"""The shim with real processes: output, exit codes, signals, stops, limits, and nothing left behind."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from tests.agent.plans import make_launch, make_plan, make_spec
from tests.waiting import wait_until
from worker_agent.machine.processes import Identity, in_sessions, is_alive
from worker_agent.protocol.codec import decode_record, encode_plan
from worker_agent.protocol.ending import Ending
from worker_agent.protocol.plan import Plan
from worker_agent.protocol.records import Exit, Gap, Log, Record, Started
from worker_agent.protocol.states import Cause, DeviceKind, Kind, Strategy
from worker_agent.replica.folder import find_exit, read_shim_state, read_stop, write_stop
from worker_agent.replica.spool import Reader, stream_length
from worker_agent.replica.training_process import training_environment
from worker_agent.replica.verdict import StopRequest

DRIVER = """
import os, sys
from pathlib import Path
from worker_agent.protocol.codec import decode_plan
from worker_agent.replica.shim import supervise
from worker_agent.replica.training_process import become_child

plan = decode_plan(Path(sys.argv[1]).read_bytes())

def fork(environment, output):
    pid = os.fork()
    if pid:
        return pid
    become_child()
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.execve(sys.executable, [sys.executable, "-S", plan.entry], environment)

supervise(plan, fork, warm=True)
"""

DEAF = """
import signal, time
signal.signal(signal.SIGTERM, lambda *_: print("asked", flush=True))
print("up", flush=True)
while True:
    time.sleep(60)
"""

Run = Callable[..., "Running"]


class Running:
    """A shim under test."""

    def __init__(self, plan: Plan, program: str) -> None:
        self.plan = plan
        Path(plan.entry).write_text(program)
        path = Path(plan.folder) / "plan.json"
        path.write_bytes(encode_plan(plan))
        self.process = subprocess.Popen([sys.executable, "-c", DRIVER, str(path)], start_new_session=True)

    def records(self) -> list[Record]:
        batch = Reader(Path(self.plan.spool) / "shim").read(max_records=1 << 30, max_bytes=1 << 30)
        return [decode_record(data) for data in batch.records]

    def text(self) -> str:
        return "".join(record.text for record in self.records() if isinstance(record, Log))

    def wait_for(self, text: str) -> None:
        wait_until(lambda: text in self.text())

    def exit(self) -> Exit:
        assert self.process.wait(timeout=20) == 0
        found = find_exit(Path(self.plan.spool))
        assert found is not None
        assert found.final == {"trainer": 0, "shim": stream_length(Path(self.plan.spool) / "shim")}
        return found

    def stop(
        self,
        *,
        grace_s: float = 10,
        cause: Cause = Cause.STOPPED,
        reason: str = "Stopped by ada.",
        stacks: bool = False,
        save: bool = False,
    ) -> None:
        request = StopRequest(at=time.time(), cause=cause, reason=reason, grace_s=grace_s, stacks=stacks, save=save)
        write_stop(Path(self.plan.folder), request)
        self.process.send_signal(signal.SIGTERM)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    started: list[Running] = []

    def start(program: str, *, kill_grace_s: float = 10, **spec: object) -> Running:
        plan = make_plan(tmp_path, make_launch(spec=make_spec(**spec)), kill_grace_s=kill_grace_s)
        started.append(Running(plan, program))
        return started[-1]

    yield start
    for running in started:
        running.process.kill()
        running.process.wait()


def test_a_run_to_the_end(run: Run, tmp_path: Path) -> None:
    wakeups = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    wakeups.bind(str(tmp_path / "notify.sock"))
    running = run("import os; print('hello', os.environ['TRAINYARD_ROLE'], os.getcwd())")
    end = running.exit()
    assert (end.code, end.signal, end.cause) == (0, None, Cause.COMPLETED)
    started, log, last = running.records()
    assert isinstance(started, Started)
    assert started.warm
    assert isinstance(log, Log)
    assert log.text == f"hello worker:0 {tmp_path}/code\n"
    assert last == end
    assert wakeups.recv(1) == b""
    wakeups.close()


def test_an_exit_code_comes_with_the_last_lines(run: Run) -> None:
    end = run("import sys; print('so far'); sys.exit('no such file: x.csv')").exit()
    assert (end.code, end.cause) == (1, Cause.EXIT_CODE)
    assert end.message == "The process ended with exit code 1."
    assert end.ending == Ending(cause=Cause.EXIT_CODE, code=1, last_lines="so far\nno such file: x.csv")


def test_a_kill_from_outside_is_told_as_such(run: Run) -> None:
    running = run("import time; print('up', flush=True); time.sleep(60)")
    running.wait_for("up")
    state = read_shim_state(Path(running.plan.folder))
    assert state is not None
    os.kill(state.child_pid, signal.SIGKILL)
    end = running.exit()
    assert (end.code, end.signal, end.cause) == (None, 9, Cause.SIGNAL)
    assert end.message.startswith("The process was killed by signal 9 (SIGKILL).")


def test_a_stop_ends_it_with_its_reason(run: Run) -> None:
    running = run("import time; print('up', flush=True); time.sleep(60)")
    running.wait_for("up")
    running.stop()
    end = running.exit()
    assert (end.signal, end.cause, end.message) == (15, Cause.STOPPED, "Stopped by ada.")


def test_a_process_that_ignores_sigterm_is_killed_after_the_grace_time(run: Run) -> None:
    running = run(
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    )
    running.wait_for("up")
    running.stop(grace_s=0.3, cause=Cause.AGENT_SHUTDOWN, reason="The agent was shut down.")
    end = running.exit()
    assert (end.signal, end.cause) == (9, Cause.AGENT_SHUTDOWN)
    assert "had not ended 0.3 s after SIGTERM" in end.message


@pytest.mark.parametrize(("save", "cause"), [(True, Cause.PAUSED), (False, Cause.STOPPED)])
def test_a_kill_from_outside_is_nothing_that_was_asked_for(run: Run, save: bool, cause: Cause) -> None:
    running = run(DEAF)
    running.wait_for("up")
    running.stop(grace_s=60, cause=cause, save=save)
    wait_until(lambda: "asked" in running.text())
    state = read_shim_state(Path(running.plan.folder))
    assert state is not None
    os.kill(state.child_pid, signal.SIGKILL)
    end = running.exit()
    assert (end.signal, end.cause) == (9, Cause.SIGNAL)
    assert end.message.startswith("The process was killed by signal 9 (SIGKILL).")


def test_who_does_not_save_in_time_is_killed_and_counts_as_paused(run: Run) -> None:
    running = run(DEAF)
    running.wait_for("up")
    running.stop(grace_s=0.3, cause=Cause.PAUSED, save=True)
    end = running.exit()
    assert (end.signal, end.cause) == (9, Cause.PAUSED)
    assert end.message == "It had not saved and left 0.3 s after it was asked to, so it was killed (SIGKILL)."


@pytest.mark.parametrize("answer", ["SIG_DFL", "lambda *_: os._exit(143)"])
def test_a_sigterm_from_outside_is_told_as_such(run: Run, answer: str) -> None:
    running = run(f"import os\nfrom signal import *\nsignal(SIGTERM, {answer})\nprint('up', flush=True)\npause()")
    running.wait_for("up")
    state = read_shim_state(Path(running.plan.folder))
    assert state is not None
    os.kill(state.child_pid, signal.SIGTERM)
    end = running.exit()
    assert (end.code, end.signal, end.cause) == (None, 15, Cause.PREEMPTED)
    assert end.message.startswith("A SIGTERM that Trainyard did not send ended it.")


def test_a_shim_that_is_asked_from_outside_asks_its_process_to_save(run: Run) -> None:
    running = run(DEAF)
    running.wait_for("up")
    running.process.send_signal(signal.SIGTERM)
    wait_until(lambda: "asked" in running.text())
    stop = read_stop(Path(running.plan.folder))
    assert stop is not None
    assert (stop.cause, stop.save) == (Cause.PREEMPTED, True)
    running.stop(grace_s=0.1)
    assert running.exit().cause is Cause.STOPPED


def test_a_stop_before_the_start_starts_nothing(run: Run, tmp_path: Path) -> None:
    write_stop(tmp_path, StopRequest(at=1.0, cause=Cause.STOPPED, reason="Stopped by ada.", grace_s=1))
    running = run("print('never')")
    end = running.exit()
    assert (end.cause, end.message) == (Cause.STOPPED, "Stopped by ada. It had not started yet.")
    assert running.records() == [end]


def test_the_time_limit(run: Run) -> None:
    end = run("import time; time.sleep(60)", time_limit_s=1).exit()
    assert (end.signal, end.cause) == (15, Cause.TIME_LIMIT)
    assert end.message == "It reached its time limit of 1 s."


def test_descendants_that_left_the_group_are_ended_too(run: Run) -> None:
    program = (
        "import os, signal, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    if os.fork() == 0:\n"
        "        print('daemon', os.getpid(), flush=True)\n"
        "        time.sleep(60)\n"
        "    os._exit(0)\n"
        "time.sleep(0.3)\n"
    )
    running = run(program)
    running.wait_for("daemon")
    daemon = int(running.text().split()[1])
    identity = read_shim_state(Path(running.plan.folder))
    assert identity is not None
    assert running.exit().cause is Cause.COMPLETED
    assert not Path(f"/proc/{daemon}").exists()
    assert in_sessions([identity.shim.pid], since=identity.shim) == []


def test_a_line_of_10_mb_arrives_whole_in_pieces(run: Run) -> None:
    running = run("print('z' * 10_000_000)")
    running.exit()
    assert running.text() == "z" * 10_000_000 + "\n"
    assert not any(isinstance(record, Gap) for record in running.records())


def test_a_second_shim_leaves_the_replica_alone(run: Run) -> None:
    running = run("import time; print('up', flush=True); time.sleep(60)")
    running.wait_for("up")
    second = Running(running.plan, "print('twice')")
    assert second.process.wait(timeout=20) == 0
    running.stop()
    running.exit()
    third = Running(running.plan, "print('again')")
    assert third.process.wait(timeout=20) == 0
    assert running.text() == "up\n"


def test_an_identity_needs_more_than_the_pid() -> None:
    me = Identity(pid=os.getpid(), start_time=0, boot_id="another")
    assert not is_alive(me)
    assert in_sessions([os.getsid(0)], since=me) == []


def test_the_environment_holds_what_must_hold(tmp_path: Path) -> None:
    spec = make_spec(
        strategy=Strategy.PARAMETER_SERVER, env={"A": "job", "TF_CONFIG": "{}", "CUDA_VISIBLE_DEVICES": "5"}
    )
    launch = make_launch(
        spec=spec,
        env={"A": "cluster", "B": "cluster"},
        tf_config={"task": {"type": "worker", "index": 0}},
        devices=[1, 2],
        device_kind=DeviceKind.GPU,
    )
    found = training_environment(make_plan(tmp_path, launch), {"A": "machine", "PATH": "/bin", "TF_CONFIG": "old"})
    assert (found["A"], found["B"], found["PATH"]) == ("job", "cluster", "/bin")
    assert found["TF_CONFIG"] == '{"task": {"type": "worker", "index": 0}}'
    assert found["CUDA_VISIBLE_DEVICES"] == "1,2"
    assert found["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID", "the order in which the agent has numbered them"
    assert found["TF_USE_LEGACY_KERAS"] == "1"
    alone = training_environment(make_plan(tmp_path, make_launch()), {"TF_CONFIG": "old"})
    assert "TF_CONFIG" not in alone
    assert alone["CUDA_VISIBLE_DEVICES"] == "-1"


def test_a_script_hears_where_its_processes_share_a_folder(tmp_path: Path) -> None:
    def told(kind: Kind, folder: str) -> str | None:
        spec = msgspec.structs.replace(make_launch().spec, kind=kind)
        plan = make_plan(tmp_path, make_launch(spec=spec, checkpoints=folder))
        return training_environment(plan, {}).get("TRAINYARD_SHARED_FOLDER")

    assert told(Kind.SCRIPT, "/shared/j-1") == "/shared/j-1"
    assert told(Kind.SCRIPT, "") is None
    assert told(Kind.RECIPE, "/shared/j-1") is None


LISTENS = """
import faulthandler, os, signal, time
file = os.open("../stacks.raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
faulthandler.register(signal.SIGRTMAX - 3, file=file, all_threads=True)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
def waits_for_a_peer():
    print("up", flush=True)
    time.sleep(60)
waits_for_a_peer()
"""


def test_a_process_that_hangs_leaves_its_stacks_before_it_is_ended(run: Run) -> None:
    """Suspended, and deaf to SIGTERM: neither keeps it."""
    running = run(LISTENS)
    running.wait_for("up")
    state = read_shim_state(Path(running.plan.folder))
    assert state is not None
    os.kill(state.child_pid, signal.SIGSTOP)
    running.stop(grace_s=0.5, cause=Cause.HUNG, reason="No step for 300 s.", stacks=True)
    end = running.exit()
    assert (end.signal, end.cause) == (9, Cause.HUNG)
    assert end.message.startswith("No step for 300 s. It had not ended 0.5 s after SIGTERM, so it was killed.")
    assert end.ending.kernel_saw == "the process was suspended by a signal (state T)."
    text = (Path(running.plan.artifacts) / "stacks-worker-0.txt").read_text()
    assert "in waits_for_a_peer" in text
