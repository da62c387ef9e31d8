"""The agent as a whole, against real Redis, Celery, HTTP and processes; only TensorFlow is missing."""

import io
import json
import os
import signal
import socket
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from tests.agent.plans import make_launch, make_spec
from tests.agent.stack import TOKEN, AgentProcess, ControlPlane, counting_trainer
from tests.waiting import wait_until
from worker_agent.daemon.settings import read_identity, write_identity
from worker_agent.machine.processes import describe, in_sessions, kill
from worker_agent.protocol.commands import Forget, Launch, Stop
from worker_agent.protocol.job.job_spec import CodeRef
from worker_agent.protocol.records import Started
from worker_agent.protocol.states import Cause, ReplicaStatus
from worker_agent.replica.folder import read_shim_state

pytestmark = pytest.mark.stack

StartAgent = Callable[..., AgentProcess]
MakeLaunch = Callable[..., Launch]


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    plane = ControlPlane(tmp_path / "control")
    yield plane
    plane.close()


@pytest.fixture
def data(tmp_path: Path, plane: ControlPlane) -> Path:
    """A data folder that has joined."""
    data = tmp_path / "agent"
    data.mkdir()
    write_identity(data, plane.identity())
    return data


@pytest.fixture
def start(data: Path) -> Iterator[StartAgent]:
    agents: list[AgentProcess] = []

    def start(*options: str) -> AgentProcess:
        agent = AgentProcess(data, "--no-zygote", *options)
        agents.append(agent)
        wait_until(lambda: agent.process.poll() is not None or any("agent is up" in line for line in agent.errors))
        return agent

    yield start
    for agent in agents:
        if agent.process.poll() is None:
            agent.kill()
    for folder in (data / "replicas").glob("*"):
        state = read_shim_state(folder)
        if state is not None:
            kill(in_sessions({state.shim.pid, state.child_pid} - {0}, since=state.shim))


@pytest.fixture
def launch(tmp_path: Path, plane: ControlPlane) -> MakeLaunch:
    environment = counting_trainer(tmp_path / "fake")

    def launch(count: int = 20, replica_id: int = 7, code: CodeRef | None = None, **changes: object) -> Launch:
        code = code or CodeRef(sha256=plane.add_code(b"# the recipe\n"), entry="recipe.py")
        spec = make_spec(code=code, env={**environment, "COUNT": str(count)})
        return make_launch(command_id=plane.next_command(), spec=spec, replica_id=replica_id, **changes)

    return launch


def pid_of(plane: ControlPlane, replica_id: int) -> int:
    wait_until(lambda: plane.steps(replica_id))
    return next(record.pid for record in plane.records(replica_id) if isinstance(record, Started))


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_replica_from_launch_to_forget(
    plane: ControlPlane, data: Path, start: StartAgent, launch: MakeLaunch
) -> None:
    start()
    command = launch(count=50, tf_config={"task": {"type": "worker", "index": 0}})
    plane.send(command, copies=2)
    end = plane.wait_for_exit(7)
    assert (end.code, end.cause) == (0, Cause.COMPLETED)
    wait_until(lambda: plane.is_complete(7))
    assert plane.steps(7) == list(range(50))
    assert '{"task": {"type": "worker", "index": 0}} # the recipe' in plane.text(7)
    wait_until(lambda: len(plane.artifacts) == 2)
    body, metrics = plane.artifacts["/agent/v1/replicas/7/artifacts/model.keras?attempt=1"]
    assert body == b"weights"
    assert json.loads(metrics) == {"loss": 0.5, "worst": "NaN"}
    assert plane.acks[command.command_id] == ""
    assert [device.name for device in plane.hellos[0].inventory.devices] == ["CPU slot 0", "CPU slot 1", "CPU slot 2"]
    wait_until(lambda: plane.beats and plane.beats[-1].replicas[0].status is ReplicaStatus.EXITED)
    wait_until((data / "replicas" / "7-1" / "uploaded").exists)
    checkpoints = data / "checkpoints" / f"{command.job_id}-1"
    (checkpoints / "step-0000000020-a1").mkdir(parents=True)
    plane.send(Forget(command_id=plane.next_command(), replica_id=7, attempt=1))
    wait_until(lambda: not (data / "replicas" / "7-1").exists() and not checkpoints.exists())


def test_a_launch_that_was_withdrawn_on_its_way_is_not_begun(
    plane: ControlPlane, data: Path, start: StartAgent, launch: MakeLaunch
) -> None:
    late, next_one = launch(), launch(replica_id=8)
    plane.send(late, wanted=False)
    start()
    plane.send(next_one)
    plane.wait_for_exit(8)
    assert late.command_id not in plane.acks
    assert not (data / "replicas" / "7-1").exists()
    plane.send(late)
    assert plane.wait_for_exit(7).cause is Cause.COMPLETED


def test_nobody_but_the_control_plane_can_command(
    plane: ControlPlane, data: Path, start: StartAgent, launch: MakeLaunch
) -> None:
    agent = start()
    plane.send(launch(replica_id=1), key=b"another key")
    plane.send_text("not base64!")
    genuine = plane.send(launch(replica_id=2))
    plane.wait_for_exit(2)
    plane.send_text(genuine)
    wait_until(lambda: sum("command refused" in line for line in agent.errors) == 3)
    assert not (data / "replicas" / "1-1").exists()
    assert any("used before" in line for line in agent.errors)


def test_a_stop_ends_it_and_one_before_its_launch_prevents_it(
    plane: ControlPlane, start: StartAgent, launch: MakeLaunch
) -> None:
    start()
    plane.send(launch(count=10_000))
    pid = pid_of(plane, 7)
    plane.send(Stop(command_id=plane.next_command(), replica_id=7, attempt=1, reason="Stopped by ada."))
    end = plane.wait_for_exit(7)
    assert (end.code, end.cause, end.message) == (7, Cause.STOPPED, "Stopped by ada.")
    assert not is_running(pid)

    plane.send(Stop(command_id=plane.next_command(), replica_id=8, attempt=1, reason="Stopped by ada."))
    assert plane.wait_for_exit(8).message == "Stopped by ada. It had not started yet."
    late = launch(replica_id=8)
    plane.send(late)
    wait_until(lambda: late.command_id in plane.acks)
    assert plane.records(8, "trainer") == []


def test_a_port_in_use(plane: ControlPlane, start: StartAgent, launch: MakeLaunch) -> None:
    start()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        plane.send(launch(tf_config={"cluster": {}}, port=port))
        end = plane.wait_for_exit(7)
    who = describe(os.getpid())
    assert (end.cause, end.message) == (Cause.PORT_TAKEN, f"Port {port} is in use on this machine already, by {who}.")
    assert [each.words for each in end.leftovers] == [f"port {port}: {who} listens on it"]


def test_code_that_is_missing_altered_or_hostile_is_refused(
    plane: ControlPlane, tmp_path: Path, start: StartAgent, launch: MakeLaunch
) -> None:
    start()
    plane.send(launch(replica_id=1, code=CodeRef(sha256="a" * 64, entry="recipe.py")))
    plane.code["b" * 64] = b"something else"
    plane.send(launch(replica_id=2, code=CodeRef(sha256="b" * 64, entry="recipe.py")))
    attack = io.BytesIO()
    with zipfile.ZipFile(attack, "w") as archive:
        archive.writestr("../../../escaped.py", "boo")
    hostile = CodeRef(sha256=plane.add_code(attack.getvalue()), entry="recipe.py", archive=True)
    plane.send(launch(replica_id=3, code=hostile))
    for replica_id, words in ((1, "no such code"), (2, "digest differs"), (3, "inside the program's folder")):
        end = plane.wait_for_exit(replica_id)
        assert end.cause is Cause.LAUNCH_REFUSED
        assert words in end.message
    assert not list(tmp_path.rglob("escaped.py"))


def test_training_outlives_the_agent_and_is_found_again(
    plane: ControlPlane, data: Path, start: StartAgent, launch: MakeLaunch
) -> None:
    agent = start()
    plane.send(launch(count=100_000))
    pid = pid_of(plane, 7)
    agent.kill()
    assert is_running(pid)
    agent = start()
    assert not plane.goodbyes
    assert agent.terminate() == 0
    assert is_running(pid)
    wait_until(lambda: len(plane.goodbyes) == 1)
    start()
    seen = len(plane.steps(7))
    wait_until(lambda: len(plane.steps(7)) > seen)
    (data / "replicas" / "7-1" / "finish").touch()
    assert plane.wait_for_exit(7).cause is Cause.COMPLETED
    wait_until(lambda: plane.is_complete(7))
    assert plane.steps(7) == list(range(len(plane.steps(7))))
    assert sum(isinstance(record, Started) for record in plane.records(7)) == 1


def test_a_run_that_ended_while_no_agent_was_there_is_reported(
    plane: ControlPlane, start: StartAgent, launch: MakeLaunch
) -> None:
    agent = start()
    plane.send(launch(count=100))
    pid = pid_of(plane, 7)
    agent.kill()
    wait_until(lambda: not is_running(pid))
    start()
    assert plane.wait_for_exit(7).cause is Cause.COMPLETED
    wait_until(lambda: plane.is_complete(7) and len(plane.artifacts) == 2)
    assert plane.steps(7) == list(range(100))


@pytest.mark.parametrize("agent_dies_too", [False, True])
def test_a_shim_that_is_killed_leaves_nothing_and_is_told(
    plane: ControlPlane, data: Path, start: StartAgent, launch: MakeLaunch, agent_dies_too: bool
) -> None:
    agent = start()
    plane.send(launch(count=10_000))
    pid = pid_of(plane, 7)
    shim = json.loads((data / "replicas" / "7-1" / "shim.json").read_bytes())["shim"]["pid"]
    if agent_dies_too:
        agent.kill()
    os.kill(shim, signal.SIGKILL)
    if agent_dies_too:
        start()
    end = plane.wait_for_exit(7)
    assert end.cause is Cause.SIGNAL
    assert "watched over the training was killed" in end.message
    wait_until(lambda: not is_running(pid))


def test_redis_away_and_back_empty_loses_nothing(plane: ControlPlane, start: StartAgent, launch: MakeLaunch) -> None:
    start()
    plane.send(launch(count=400))
    pid_of(plane, 7)
    plane.redis.kill()
    plane.redis.start()
    wait_until(lambda: len(plane.hellos) >= 2)
    assert plane.wait_for_exit(7).cause is Cause.COMPLETED
    wait_until(lambda: plane.is_complete(7))
    assert plane.steps(7) == list(range(400))
    plane.send(launch(replica_id=8))
    assert plane.wait_for_exit(8).cause is Cause.COMPLETED


def test_a_redis_that_is_gone_ends_nothing_and_one_that_is_silent_ends_it_by_its_lease(
    plane: ControlPlane, start: StartAgent, launch: MakeLaunch
) -> None:
    start()
    plane.send(launch(count=100_000, lease_s=3.0))
    pid = pid_of(plane, 7)
    plane.redis.kill()
    time.sleep(5)
    assert is_running(pid)
    plane.redis.start()
    wait_until(lambda: len(plane.hellos) >= 2)
    plane.redis.process.send_signal(signal.SIGSTOP)
    try:
        wait_until(lambda: not is_running(pid))
    finally:
        plane.redis.process.send_signal(signal.SIGCONT)
    assert plane.wait_for_exit(7).cause is Cause.LEASE_LOST
    wait_until(lambda: plane.is_complete(7))
    assert plane.steps(7) == list(range(len(plane.steps(7))))


def test_reports_lost_on_the_way_are_sent_again(plane: ControlPlane, start: StartAgent, launch: MakeLaunch) -> None:
    start()
    plane.send(launch(count=100))
    pid_of(plane, 7)
    plane.is_ingesting = False
    wait_until(lambda: plane.beats)
    plane.redis.kill()
    plane.redis.start()
    plane.is_ingesting = True
    wait_until(lambda: plane.is_complete(7))
    assert plane.steps(7) == list(range(100))


def test_an_agent_told_to_end_its_replicas_does_so_and_says_it(
    plane: ControlPlane, start: StartAgent, launch: MakeLaunch
) -> None:
    agent = start("--end-replicas-on-exit")
    plane.send(launch(count=10_000))
    pid = pid_of(plane, 7)
    assert agent.terminate() == 0, agent.errors
    end = plane.wait_for_exit(7)
    assert (end.cause, end.message) == (Cause.AGENT_SHUTDOWN, "It left without saving.")
    assert not is_running(pid)


def test_one_agent_per_data_folder(data: Path, start: StartAgent) -> None:
    start()
    second = start()
    assert second.wait() == 2
    assert second.errors == [f"trainyard agent: another agent is running on {data}\n"]


def test_joining_gives_an_identity_for_the_agent_alone(plane: ControlPlane, tmp_path: Path) -> None:
    data = tmp_path / "new" / "folder"
    options = ("--token", TOKEN, "--name", "node-1", "--slots", "3", "--address", "127.0.0.1", "--no-run")
    joining = AgentProcess(data, *options, command=("join", plane.url))
    assert joining.wait() == 0
    assert joining.errors == ["This machine is node 'node-1' of cluster 'local' now.\n"]
    assert (data / "agent.json").stat().st_mode & 0o777 == 0o600
    assert read_identity(data) == plane.identity()


def test_the_clusters_network_is_told_at_joining_and_asked_for_at_each_start(
    plane: ControlPlane, data: Path, start: StartAgent
) -> None:
    plane.network = {"interface": "eth1", "address_range": "10.1.0.0/16"}
    (data / "agent.json").unlink()
    joining = AgentProcess(data, "--token", TOKEN, "--name", "node-1", "--no-run", command=("join", plane.url))
    assert joining.wait() == 0
    joined = read_identity(data)
    assert joined is not None
    assert (joined.address_given, joined.interface, joined.address_range) == (False, "eth1", "10.1.0.0/16")
    plane.network = {"interface": "lo", "address_range": "127.0.0.0/8"}
    write_identity(data, msgspec.structs.replace(joined, address="10.1.0.5"))
    start()
    wait_until(lambda: plane.hellos)
    assert plane.hellos[0].address == "127.0.0.1"
    assert read_identity(data) == msgspec.structs.replace(joined, address="127.0.0.1", **plane.network)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--token", "used"), "joining was refused: This join token has been used already."),
        (("--token", TOKEN, "--name", "taken"), "joining was refused: There is a node called taken already."),
    ],
)
def test_joining_that_is_refused(plane: ControlPlane, tmp_path: Path, options: tuple[str, ...], words: str) -> None:
    joining = AgentProcess(tmp_path / "new", *options, command=("join", plane.url))
    assert joining.wait() == 2
    assert joining.errors == [f"trainyard agent: {words}\n"]
    assert not (tmp_path / "new" / "agent.json").exists()


def test_joining_twice_and_joining_nowhere(data: Path, tmp_path: Path, plane: ControlPlane) -> None:
    again = AgentProcess(data, "--token", TOKEN, command=("join", plane.url))
    assert again.wait() == 2
    assert f"has already joined {plane.url} as node 'node-1'" in again.errors[0]
    still = AgentProcess(data, "--token", TOKEN, "--if-new", "--no-run", command=("join", plane.url))
    assert still.wait() == 0
    nowhere = AgentProcess(tmp_path / "new", "--token", TOKEN, command=("join", "http://127.0.0.1:9"))
    assert nowhere.wait() == 2
    assert nowhere.errors[0].startswith("trainyard agent: http://127.0.0.1:9 could not be reached")
    not_joined = AgentProcess(tmp_path / "new")
    assert not_joined.wait() == 2
    assert "no node has joined" in not_joined.errors[0]
