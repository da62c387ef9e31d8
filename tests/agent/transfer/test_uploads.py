"""Files on their way up: of a recipe at its end, of a script while it runs; each settled once, with patience."""

import json
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import pytest

from tests.waiting import wait_until
from worker_agent.daemon.control_plane import Rejected, Unreachable
from worker_agent.daemon.core import ReplicaKey
from worker_agent.daemon.journal import Journal
from worker_agent.daemon.transfer import file_uploads
from worker_agent.daemon.transfer.file_uploads import FileUploads, metrics_of
from worker_agent.protocol.files import LeftFile, NotKept, Offer
from worker_agent.protocol.job.job_spec import CodeRef, JobSpec
from worker_agent.protocol.states import Kind, Strategy

KEY = ReplicaKey(7, 2)
AWAY = Unreachable("connection refused")
RECIPE = JobSpec(name="t", code=CodeRef(sha256="0", entry="m.py"), strategy=Strategy.ONE_DEVICE, cluster="local")
SCRIPT = msgspec.structs.replace(RECIPE, kind=Kind.SCRIPT)


class FakeControlPlane:
    """Takes files after as many failures as it is told to; has room for those of at most `largest` bytes."""

    def __init__(
        self,
        *,
        failures: int = 0,
        failure: Exception = AWAY,
        rejected: frozenset[str] = frozenset(),
        largest: int = 10**9,
    ) -> None:
        self.failures, self.failure, self.rejected, self.largest = failures, failure, rejected, largest
        self.taken: dict[str, bytes] = {}
        self.times: dict[str, int] = {}
        self.offers: list[Offer] = []

    def offer_files(self, offer: Offer, *, replica_id: int, attempt: int) -> list[str]:
        assert (replica_id, attempt) == KEY
        self.offers.append(offer)
        return [name for name, size in offer.files.items() if size <= self.largest]

    def upload_artifact(
        self,
        pieces: Iterable[bytes],
        *,
        name: str,
        size_bytes: int,
        sha256: str,
        replica_id: int,
        attempt: int,
        metrics: str,
    ) -> None:
        assert (replica_id, attempt) == KEY
        if self.failures:
            self.failures -= 1
            raise self.failure
        if name in self.rejected:
            raise Rejected(409, "This is an old attempt.")
        self.taken[name] = b"".join(pieces)
        self.times[name] = self.times.get(name, 0) + 1
        assert len(self.taken[name]) == size_bytes


class Replica:
    """The folders of one replica, as the runner leaves them when its program is about to begin."""

    def __init__(self, home: Path) -> None:
        self.journal = Journal(home, notify="")
        self.folder = self.journal.folder(KEY)
        self.code, self.artifacts = self.folder / "code", self.folder / "artifacts"
        for folder in (self.code, self.artifacts):
            folder.mkdir(parents=True)

    def begin(self) -> None:
        self.journal.mark_installed(KEY)
        threading.Event().wait(0.02)  # a tick of the disk's clock


@pytest.fixture
def replica(tmp_path: Path) -> Replica:
    return Replica(tmp_path)


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_uploads, "LOOK_S", 0.02)
    monkeypatch.setattr(file_uploads, "LOOK_SHARE", 1.0)


def deliver(plane: FakeControlPlane, replica: Replica, spec: JobSpec = RECIPE) -> None:
    done = threading.Event()
    uploads = FileUploads(plane, replica.journal, lambda key: done.set() if key == KEY else None)  # type: ignore[arg-type]
    uploads.finish(KEY, spec)
    assert done.wait(10)
    uploads.close()


@pytest.fixture
def following(replica: Replica) -> Iterator[tuple[FakeControlPlane, FileUploads]]:
    plane = FakeControlPlane(largest=1000)
    uploads = FileUploads(plane, replica.journal, lambda key: None)  # type: ignore[arg-type]
    replica.begin()
    uploads.follow(KEY, SCRIPT)
    yield plane, uploads
    uploads.close()


def test_every_file_arrives_although_the_control_plane_was_away(replica: Replica) -> None:
    (replica.artifacts / "model.keras").write_bytes(b"weights")
    (replica.artifacts / "figures").mkdir()
    (replica.artifacts / "figures" / "loss.png").write_bytes(b"png")
    plane = FakeControlPlane(failures=3)
    deliver(plane, replica)
    assert plane.taken == {"model.keras": b"weights", "figures/loss.png": b"png"}
    assert plane.offers == []


def test_of_a_script_that_left_nothing_nothing_is_offered(replica: Replica) -> None:
    plane = FakeControlPlane()
    replica.begin()
    deliver(plane, replica, SCRIPT)
    assert (plane.offers, plane.taken) == ([], {})


def test_a_clock_that_is_off_for_a_while_costs_no_model(replica: Replica) -> None:
    (replica.artifacts / "model.keras").write_bytes(b"weights")
    plane = FakeControlPlane(failures=2, failure=Rejected(401, "The signature is too old."))
    deliver(plane, replica)
    assert plane.taken == {"model.keras": b"weights"}


def test_what_a_deleted_job_left_is_settled_without_being_taken(replica: Replica) -> None:
    (replica.artifacts / "model.keras").write_bytes(b"weights")
    plane = FakeControlPlane(failures=1, failure=Rejected(404, "There is no replica 7."))
    deliver(plane, replica)
    assert plane.taken == {}


@pytest.mark.parametrize("spec", [RECIPE, SCRIPT])
def test_a_file_that_is_refused_or_cannot_be_read_does_not_hold_up_the_others(replica: Replica, spec: JobSpec) -> None:
    for name in ("a", "b", "c"):
        (replica.artifacts / name).write_bytes(name.encode())
    (replica.artifacts / "c").chmod(0)
    plane = FakeControlPlane(rejected=frozenset({"a"}))
    deliver(plane, replica, spec)
    assert plane.taken.keys() - {"c"} == {"b"}
    if spec is SCRIPT:
        assert plane.offers[-1].left[0] == LeftFile(name="a", size_bytes=1, why=NotKept.REFUSED)


def test_a_program_cannot_end_the_deliveries_of_its_node(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    (replica.artifacts / "metrics.json").write_text("[" * 200_000)
    Path(os.fsdecode(os.fsencode(replica.artifacts) + b"/caf\xe9")).write_bytes(b"no text")

    class Failing(FakeControlPlane):
        def upload_artifact(self, pieces: Iterable[bytes], *, name: str, **more: object) -> None:
            if name == "metrics.json":
                raise UnicodeError("anything")
            super().upload_artifact(pieces, name=name, **more)  # type: ignore[arg-type]

    plane = Failing()
    deliver(plane, replica)
    assert list(plane.taken.values()) == [b"no text"]


def test_nothing_to_deliver_is_done_at_once(replica: Replica) -> None:
    plane = FakeControlPlane()
    deliver(plane, replica, SCRIPT)
    assert plane.taken == {}


def test_a_script_that_never_began_leaves_nothing_of_its_own_program(replica: Replica) -> None:
    (replica.code / "labels.txt").write_text("a")
    plane = FakeControlPlane()
    deliver(plane, replica, SCRIPT)
    assert plane.taken == {}


def test_what_a_script_writes_arrives_while_it_runs(
    replica: Replica, following: tuple[FakeControlPlane, FileUploads]
) -> None:
    plane, _ = following
    (replica.code / "plots").mkdir()
    (replica.code / "plots/loss.png").write_bytes(b"picture")
    (replica.code / "scratch.bin").write_bytes(b"not asked for")
    (replica.artifacts / "scratch.xyz").write_bytes(b"saved by hand")
    wait_until(lambda: len(plane.taken) == 2)
    assert plane.taken == {"plots/loss.png": b"picture", "scratch.xyz": b"saved by hand"}
    (replica.code / "plots/loss.png").write_bytes(b"another picture")
    wait_until(lambda: plane.taken["plots/loss.png"] == b"another picture")
    assert plane.times == {"plots/loss.png": 2, "scratch.xyz": 1}
    assert plane.offers[-1].left == [LeftFile(name="scratch.bin", size_bytes=13, why=NotKept.UNASKED)]


def test_a_file_that_nobody_asks_for_is_told_of_once_while_it_grows(
    replica: Replica, following: tuple[FakeControlPlane, FileUploads]
) -> None:
    plane, uploads = following
    (replica.code / "__pycache__").mkdir()
    (replica.code / "__pycache__/own.pyc").touch()
    with (replica.code / "train.out").open("w") as growing:
        for _ in range(60):
            growing.write("x")
            growing.flush()
            threading.Event().wait(0.005)
    assert len(plane.offers) < 10
    uploads.finish(KEY, SCRIPT)
    wait_until(lambda: plane.offers[-1].left == [LeftFile(name="train.out", size_bytes=60, why=NotKept.UNASKED)])
    assert not plane.taken


def test_what_is_not_kept_for_other_reasons_is_named_before_what_nobody_asks_for(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_uploads, "NAMED_MAX", 2)
    replica.begin()
    for number in range(5):
        (replica.code / f"{number}.bin").touch()
    (replica.code / "z.h5").symlink_to(replica.code / "0.bin")
    plane = FakeControlPlane()
    deliver(plane, replica, SCRIPT)
    assert ([file.why for file in plane.offers[-1].left], plane.offers[-1].more) == ([NotKept.LINK, NotKept.UNASKED], 4)


def test_what_there_is_no_room_for_is_not_sent_and_what_cannot_be_taken_is_told(
    replica: Replica, following: tuple[FakeControlPlane, FileUploads]
) -> None:
    plane, _ = following
    (replica.code / "huge.h5").write_bytes(b"x" * 2000)
    (replica.code / "latest.h5").symlink_to(replica.code / "huge.h5")
    (replica.code / "small.h5").write_bytes(b"x")
    wait_until(lambda: "small.h5" in plane.taken)
    wait_until(lambda: plane.offers[-1].files == {"huge.h5": 2000})
    assert plane.offers[-1].left[0].why is NotKept.LINK
    assert list(plane.taken) == ["small.h5"]
    told = len(plane.offers)
    threading.Event().wait(0.2)
    assert len(plane.offers) == told


def test_a_table_that_grows_is_sent_now_and_then_and_a_model_when_it_stands_still(
    replica: Replica, following: tuple[FakeControlPlane, FileUploads], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_uploads, "GROWN_S", 0.1)
    plane, uploads = following
    with (replica.code / "log.csv").open("w") as table, (replica.code / "model.h5").open("w") as model:
        for _ in range(100):
            table.write("1\n")
            model.write("x")
            table.flush()
            model.flush()
            threading.Event().wait(0.005)
            if plane.taken:
                break
    assert list(plane.taken) == ["log.csv"]
    uploads.finish(KEY, SCRIPT)
    wait_until(lambda: "model.h5" in plane.taken)
    assert plane.taken["log.csv"] == (replica.code / "log.csv").read_bytes()


def test_a_thousand_files_are_kept_and_the_others_are_counted(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_uploads, "FILES_MAX", 20)
    monkeypatch.setattr(file_uploads, "NAMED_MAX", 3)
    replica.begin()
    for number in range(30):
        (replica.code / f"{number:02d}.png").touch()
    plane = FakeControlPlane()
    deliver(plane, replica, SCRIPT)
    assert len(plane.taken) == 20
    assert ([file.why for file in plane.offers[-1].left], plane.offers[-1].more) == ([NotKept.MANY] * 3, 7)


def test_an_agent_that_is_started_again_sends_only_the_rest(replica: Replica) -> None:
    replica.begin()
    (replica.code / "a.png").touch()
    deliver(FakeControlPlane(), replica, SCRIPT)
    (replica.code / "b.png").touch()
    plane = FakeControlPlane()
    deliver(plane, replica, SCRIPT)
    assert list(plane.taken) == ["b.png"]


def test_a_file_that_never_stands_still_is_given_up_once_its_program_has_ended(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica.begin()
    path = replica.code / "log.txt"
    path.write_text("x")

    class Racing(FakeControlPlane):
        def upload_artifact(self, pieces: Iterable[bytes], **more: object) -> None:
            path.write_text("y" if path.read_text() == "x" else "x")
            list(pieces)

    plane = Racing()
    deliver(plane, replica, SCRIPT)
    assert plane.offers[-1].left == [LeftFile(name="log.txt", size_bytes=1, why=NotKept.CHANGING)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"loss": 0.5, "bad": NaN, "big": -Infinity}', {"loss": 0.5, "bad": "NaN", "big": "-Infinity"}),
        ("[1]", None),
        ("{", None),
        ("[" * 200_000, None),
        (json.dumps({"x" * 5000: 1}), None),
    ],
)
def test_metrics_travel_as_strict_json(tmp_path: Path, text: str, expected: dict[str, object] | None) -> None:
    (tmp_path / "metrics.json").write_text(text)
    found = metrics_of(tmp_path)
    assert (json.loads(found) if found else None) == expected
