"""Artifacts on their way up: every plain file once, with patience, and only what belongs to the job."""

import json
import os
import threading
from pathlib import Path

import pytest

from worker_agent.daemon.control_plane import Rejected, Unreachable
from worker_agent.daemon.core import ReplicaKey
from worker_agent.daemon.transfer import artifact_uploads
from worker_agent.daemon.transfer.artifact_uploads import ArtifactUploads, artifact_name, files_of, metrics_of
from worker_agent.protocol.envelope import sign_request

KEY = ReplicaKey(7, 2)


AWAY = Unreachable("connection refused")


class FakeControlPlane:
    """Takes files after as many failures as it is told to."""

    def __init__(
        self,
        *,
        failures: int = 0,
        failure: Exception = AWAY,
        rejected: frozenset[str] = frozenset(),
    ) -> None:
        self.failures, self.failure, self.rejected = failures, failure, rejected
        self.taken: dict[str, bytes] = {}

    def upload_artifact(self, file: Path, *, name: str, replica_id: int, attempt: int, metrics: str) -> None:
        assert (replica_id, attempt) == KEY
        if self.failures:
            self.failures -= 1
            raise self.failure
        if name in self.rejected:
            raise Rejected(409, "This is an old attempt.")
        self.taken[name] = file.read_bytes()


def deliver(plane: FakeControlPlane, folder: Path) -> None:
    done = threading.Event()
    uploader = ArtifactUploads(plane, lambda key: done.set() if key == KEY else None)
    uploader.add(KEY, folder)
    assert done.wait(10)
    uploader.close()


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifact_uploads, "_FIRST_PAUSE_S", 0.001)


def test_every_file_arrives_although_the_control_plane_was_away(tmp_path: Path) -> None:
    (tmp_path / "model.keras").write_bytes(b"weights")
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "loss.png").write_bytes(b"png")
    plane = FakeControlPlane(failures=3)
    deliver(plane, tmp_path)
    assert plane.taken == {"model.keras": b"weights", "figures-loss.png": b"png"}


def test_a_clock_that_is_off_for_a_while_costs_no_model(tmp_path: Path) -> None:
    (tmp_path / "model.keras").write_bytes(b"weights")
    plane = FakeControlPlane(failures=2, failure=Rejected(401, "The signature is too old."))
    deliver(plane, tmp_path)
    assert plane.taken == {"model.keras": b"weights"}


def test_what_a_deleted_job_left_is_settled_without_being_taken(tmp_path: Path) -> None:
    (tmp_path / "model.keras").write_bytes(b"weights")
    plane = FakeControlPlane(failures=1, failure=Rejected(404, "There is no replica 7."))
    deliver(plane, tmp_path)
    assert plane.taken == {}


def test_a_file_that_is_refused_does_not_hold_up_the_others(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(name.encode())
    plane = FakeControlPlane(rejected=frozenset({"a"}))
    deliver(plane, tmp_path)
    assert plane.taken == {"b": b"b"}


def test_a_program_cannot_end_the_deliveries_of_its_node(tmp_path: Path) -> None:
    hostile, harmless = tmp_path / "hostile", tmp_path / "harmless"
    hostile.mkdir()
    (hostile / "metrics.json").write_text("[" * 200_000)
    Path(os.fsdecode(os.fsencode(hostile) + b"/caf\xe9")).write_bytes(b"no text")
    harmless.mkdir()
    (harmless / "model.keras").write_bytes(b"weights")
    taken: list[str] = []
    done = threading.Semaphore(0)

    class Signing:
        """Signs the name, as the real one does, and cannot be given one of the files."""

        def upload_artifact(self, file: Path, *, name: str, replica_id: int, attempt: int, metrics: str) -> None:
            sign_request(method="PUT", path=name, at=0, key=b"key")
            if name == "metrics.json":
                raise UnicodeError("anything")
            taken.append(name)

    uploader = ArtifactUploads(Signing(), lambda key: done.release())
    for folder in (hostile, harmless):
        uploader.add(KEY, folder)
    assert done.acquire(timeout=10)
    assert done.acquire(timeout=10)
    uploader.close()
    assert sorted(taken) == ["caf\N{REPLACEMENT CHARACTER}", "model.keras"]


def test_nothing_to_deliver_is_done_at_once(tmp_path: Path) -> None:
    plane = FakeControlPlane()
    deliver(plane, tmp_path / "missing")
    assert plane.taken == {}


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("key")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").touch()
    folder = tmp_path / "artifacts"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "folder").symlink_to(tmp_path / "outside")
    (folder / "mine").touch()
    assert [artifact_name(folder, file) for file in files_of(folder)] == ["mine"]


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
