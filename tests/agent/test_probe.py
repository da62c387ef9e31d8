"""A node looks whether a job could run: doors between nodes over real sockets, the shared folder, the devices."""

import hashlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.agent.plans import make_spec
from tests.agent.stack import free_port
from tests.waiting import wait_until
from worker_agent.daemon.control_plane import NotFetched
from worker_agent.daemon.probes import building, checkpoint_place
from worker_agent.daemon.probes.prober import Prober
from worker_agent.daemon.transfer.program_store import ProgramStore
from worker_agent.daemon.zygotes import Zygotes
from worker_agent.machine.listeners import bound
from worker_agent.machine.tpu_address import why_silent
from worker_agent.protocol.commands import Door, Probe
from worker_agent.protocol.job.job_spec import CodeRef
from worker_agent.protocol.reports import Device, Probed
from worker_agent.protocol.states import DeviceKind, Strategy

KEY = "0123456789abcdef"
A = Door(label="worker:0", node="a", host="127.0.0.1", port=0)
B = Door(label="worker:1", node="b", host="127.0.0.1", port=0)

Ask = Callable[..., None]


class Told:
    """What the nodes report, by node."""

    def __init__(self) -> None:
        self.reports: dict[str, Probed] = {}

    def take(self, report: Probed) -> None:
        assert report.node_id not in self.reports, "a probe is answered once"
        self.reports[report.node_id] = report

    def of(self, node: str) -> Probed:
        wait_until(lambda: node in self.reports)
        return self.reports[node]

    def whats(self, node: str) -> list[str]:
        return [finding.what for finding in self.of(node).findings]


def make_probe(node: str, **changes: object) -> Probe:
    values: dict[str, object] = {
        "command_id": 1,
        "preflight_id": 5,
        "key": KEY,
        "node": node,
        "own": [],
        "others": [],
        "devices": [0],
        "device_kind": DeviceKind.CPU,
        "spec": make_spec(),
        "window_s": 5.0,
    }
    return Probe(**(values | changes))


def put(data: Path, content: bytes) -> CodeRef:
    """A program that the node has fetched already."""
    digest = hashlib.sha256(content).hexdigest()
    (data / "code").mkdir(parents=True)
    (data / "code" / digest).write_bytes(content)
    return CodeRef(sha256=digest, entry="recipe.py")


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def ask(tmp_path: Path, told: Told) -> Iterator[Ask]:
    """Give a probe to the prober of its node; every node has two CPU slots."""
    probers: dict[str, Prober] = {}
    slots = [Device(index=index, kind="cpu", name=f"CPU slot {index}") for index in range(2)]

    def ask(node: str, **changes: object) -> None:
        if node not in probers:
            data = tmp_path / f"data-{node}"
            code = ProgramStore(data, None)  # type: ignore[arg-type]  # nothing is fetched here
            builder = building.Builder(data, code, Zygotes(data, enabled=False))
            probers[node] = Prober(builder, node_id=node, devices=lambda: slots, tell=told.take)
        probers[node].begin(make_probe(node, **changes))

    yield ask
    for prober in probers.values():
        prober.close()


@pytest.fixture
def pair() -> tuple[Door, Door]:
    """A door on each of two nodes, both on free ports of this machine."""
    return tuple(Door(label=d.label, node=d.node, host=d.host, port=free_port()) for d in (A, B))  # type: ignore[return-value]


def test_two_nodes_that_reach_each_other_find_nothing(ask: Ask, told: Told, pair, tmp_path: Path) -> None:
    a, b = pair
    shared = tmp_path / "shared"
    shared.mkdir()
    ask("a", own=[a], others=[b], checkpoints=str(shared))
    ask("a", own=[a], others=[b], checkpoints=str(shared))  # the command came twice
    ask("b", own=[b], others=[a], checkpoints=str(shared))
    for node in ("a", "b"):
        report = told.of(node)
        assert (report.findings, report.taken, report.unreached) == ([], [], {})
    assert list(shared.iterdir()) == []
    for door in pair:
        bound(door.port).close()


def test_a_taken_port_is_told_and_nothing_of_it_is_touched(ask: Ask, told: Told, pair) -> None:
    a, b = pair
    with closing(socket.create_server(("127.0.0.1", b.port))) as other:
        ask("a", own=[a], others=[b], window_s=0.5)
        ask("b", own=[b], others=[a], window_s=0.5)
        assert told.of("b").taken == ["worker:1"]
        assert told.whats("b") == [f"port {b.port} cannot be opened on b"]
        assert not told.of("b").findings[0].blocks, "the job would be launched again on other ports"
        unreached = told.of("a").unreached["worker:1"]
        assert "a does not reach worker:1" in unreached.what
        assert "another program has the port" in unreached.why
        assert other.getsockname()[1] == b.port


def test_a_taken_port_that_a_person_has_written_blocks(ask: Ask, told: Told, pair) -> None:
    a, _ = pair
    with closing(socket.create_server(("127.0.0.1", a.port))):
        ask("a", own=[a], spec=make_spec(tf_config="{}"))
        assert told.of("a").findings[0].blocks
        assert "TF_CONFIG" in told.of("a").findings[0].remedy


def test_a_node_that_nobody_answers_from_is_told_by_those_who_call(ask: Ask, told: Told, pair) -> None:
    a, b = pair
    ask("a", own=[a], others=[b], window_s=0.4)
    finding = told.of("a").unreached["worker:1"]
    assert "connection refused" in finding.why
    assert finding.blocks


def test_a_stranger_on_the_port_is_not_taken_for_the_node(ask: Ask, told: Told, pair) -> None:
    a, b = pair
    with closing(socket.create_server(("127.0.0.1", b.port))) as stranger:

        def answer() -> None:
            connection, _ = stranger.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        ask("a", own=[a], others=[b], window_s=0.4)
        assert "worker:1" in told.of("a").unreached


def test_who_knows_no_key_is_not_answered(ask: Ask, told: Told, pair) -> None:
    a, b = pair
    ask("a", own=[a], others=[b], window_s=1.0)

    def rejected() -> bool:
        try:
            with socket.create_connection((a.host, a.port), timeout=2.0) as connection:
                connection.sendall(b"trainyard-probe wrong b\n")
                return connection.recv(100) == b""
        except ConnectionRefusedError:
            return False

    wait_until(rejected, within_s=5.0)
    assert "worker:1" in told.of("a").unreached


def test_folders_that_are_not_the_same_one(ask: Ask, told: Told, pair, tmp_path: Path) -> None:
    a, b = pair
    for node, own, others in (("a", [a], [b]), ("b", [b], [a])):
        place = tmp_path / node
        place.mkdir()
        ask(node, own=own, others=others, checkpoints=str(place))
    assert told.whats("a") == [f"b does not see what a writes into {tmp_path / 'a'}"]
    assert told.whats("b") == [f"a does not see what b writes into {tmp_path / 'b'}"]


def test_a_folder_that_is_not_there_or_cannot_be_written(ask: Ask, told: Told, tmp_path: Path) -> None:
    ask("a", checkpoints=str(tmp_path / "absent"))
    (finding,) = told.of("a").findings
    assert finding.blocks
    assert finding.why == "it does not exist"
    assert not (tmp_path / "absent").exists(), "a place that is not mounted is not made"
    (tmp_path / "file").write_text("not a folder")
    with checkpoint_place.marked(str(tmp_path / "file"), key=KEY, node="a") as (finding,):
        assert finding.why == "not a directory"


def test_a_disk_that_hangs_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    monkeypatch.setattr(checkpoint_place, "_problems", lambda *_: released.wait(30) and [])
    with checkpoint_place.marked(str(tmp_path), key=KEY, node="a", patience_s=0.05) as (finding,):
        released.set()
    assert "has not answered" in finding.why


def test_a_full_disk_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_place, "FREE_BYTES", 1 << 62)
    with checkpoint_place.marked(str(tmp_path), key=KEY, node="a") as (finding,):
        assert [path.name for path in tmp_path.iterdir()] == [f".trainyard-{KEY}-a"]
    assert list(tmp_path.iterdir()) == []
    assert not finding.blocks
    assert "nearly full" in finding.what


def test_the_program_is_built_once_and_nothing_stays(ask: Ask, told: Told, tmp_path: Path) -> None:
    program = b"def build_model(params): ...\n\n\ndef build_dataset(params, split): ...\n"
    # The time is over long before TensorFlow is imported, which comes before the program is loaded.
    spec = make_spec(code=put(tmp_path / "data-a", program))
    ask("a", builds=True, spec=spec, build_limit_s=0.2)
    (finding,) = told.of("a").findings
    assert not finding.blocks
    assert finding.what == "the program was not built in time"
    assert told.of("a").tried
    assert list((tmp_path / "data-a" / "probes").iterdir()) == []


def test_whether_the_program_was_tried_is_told(
    ask: Ask, told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = make_spec(code=put(tmp_path / "data-a", b"raise SystemExit"))
    ask("a", spec=spec)
    assert not told.of("a").tried, "nobody asked for it"
    ask("b", builds=True, spec=spec)
    assert told.whats("b") == ["b could not be checked"], "its store was never told where programs come from"
    assert not told.of("b").tried

    def refused(*_: object, **__: object) -> None:
        raise NotFetched("The program is not there.")

    monkeypatch.setattr(ProgramStore, "install", refused)
    ask("c", builds=True, spec=spec)
    assert (told.whats("c"), told.of("c").tried) == (["the program did not reach the node"], False)
    monkeypatch.setattr(building, "BUSY_S", 0.01)
    released, building_now = threading.Event(), threading.Event()

    def slow(*_: object, **__: object) -> None:
        building_now.set()
        released.wait(30)
        refused()

    monkeypatch.setattr(ProgramStore, "install", slow)
    ask("d", builds=True, spec=spec)
    assert building_now.wait(30)
    ask("d", builds=True, spec=spec, preflight_id=6)
    assert (told.whats("d"), told.of("d").tried) == (["the program was not built"], False)
    told.reports.clear()
    released.set()
    assert told.whats("d") == ["the program did not reach the node"]


def test_one_that_nobody_waits_for_any_more_is_ended_or_never_begun(
    told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    building_now, ended = threading.Event(), threading.Event()

    def build(_: object, probe: Probe, *, wait: Callable[[float], bool], gpus: bool) -> building.Built:
        building_now.set()
        if wait(30):
            ended.set()
        return building.Built([], tried=False)

    monkeypatch.setattr(building.Builder, "build", build)
    cold, code = Zygotes(tmp_path, enabled=False), ProgramStore(tmp_path, None)  # type: ignore[arg-type]
    prober = Prober(building.Builder(tmp_path, code, cold), node_id="a", devices=list, tell=told.take)
    prober.begin(make_probe("a", builds=True, preflight_id=1))
    assert building_now.wait(10)
    prober.end(2)
    assert not ended.is_set()
    prober.end(1)
    assert ended.wait(10)
    building_now.clear()
    prober.begin(make_probe("a", builds=True, preflight_id=2))
    prober.close()
    assert not building_now.is_set()


def test_the_next_agent_answers_for_one_that_was_killed_while_it_built(told: Told, tmp_path: Path) -> None:
    (tmp_path / "probes" / "7" / "scratch").mkdir(parents=True)
    code, cold = ProgramStore(tmp_path, None), Zygotes(tmp_path, enabled=False)  # type: ignore[arg-type]
    Prober(building.Builder(tmp_path, code, cold), node_id="a", devices=list, tell=told.take).start()
    report = told.of("a")
    assert (report.preflight_id, report.tried, told.whats("a")) == (7, False, ["the program was not built"])
    assert not (tmp_path / "probes").exists()


def test_the_program_is_tried_as_on_a_node_without_gpus(ask: Ask, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(building.Builder, "build", lambda *_, gpus, **__: asked.append(gpus) or building.Built([]))
    ask("a", builds=True)
    assert told.of("a").tried
    assert asked == [False], "it has CPU slots"


def test_a_node_with_too_many_checks_to_do_has_tried_nothing(
    ask: Ask, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker_agent.daemon.probes.prober.PROBES_MAX", 0)
    ask("a", builds=True)
    assert (told.whats("a"), told.of("a").tried) == (["nothing was checked"], False)


@pytest.mark.tf
def test_an_error_of_the_program_comes_with_its_own_line(ask: Ask, told: Told, tmp_path: Path) -> None:
    content = (
        b"def build_dataset(params, split): ...\n\ndef build_model(params):\n    raise ValueError('no such layer')\n"
    )
    ask("a", builds=True, spec=make_spec(code=put(tmp_path / "data-a", content)))
    (finding,) = told.of("a").findings
    assert (finding.what, finding.blocks) == ("the program's build_model() fails", True)
    assert finding.why == "ValueError: no such layer (in recipe.py, line 4, build_model)"
    assert told.of("a").tried


def test_a_tpu_that_does_not_answer_blocks(ask: Ask, told: Told) -> None:
    silent = f"grpc://127.0.0.1:{free_port()}"
    ask("a", spec=make_spec(strategy=Strategy.TPU, tpu=silent))
    (finding,) = told.of("a").findings
    assert (finding.what, finding.certain) == ("the job's TPU does not answer", True)
    assert finding.why == f"The TPU {silent} does not answer a: connection refused"
    assert finding.blocks
    with closing(socket.create_server(("127.0.0.1", 0))) as tpu:
        address = f"grpc://127.0.0.1:{tpu.getsockname()[1]}"
        ask("b", spec=make_spec(strategy=Strategy.TPU, tpu=address))
        assert told.whats("b") == []
        assert why_silent(f"{address},{silent}") == "connection refused", "all of several"
    assert why_silent("grpc://:1") == "it names no host"
    assert "port" in why_silent("grpc://h:none").lower()
    assert why_silent("my-tpu") == why_silent("local") == "", "TensorFlow looks these up"


def test_devices_that_are_gone(ask: Ask, told: Told) -> None:
    ask("a", devices=[1, 2, 3])
    assert told.whats("a") == ["a has no CPU 2, 3"]
