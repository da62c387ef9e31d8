"""Checkpoints between node and control plane: up while the training goes on, down before a gang begins with one."""

import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.agent.plans import make_launch
from worker_agent.daemon.control_plane import NotFetched, Rejected, Unreachable
from worker_agent.daemon.core import ReplicaKey
from worker_agent.daemon.journal import Journal
from worker_agent.daemon.transfer import checkpoint_transfer
from worker_agent.daemon.transfer.checkpoint_transfer import (
    CheckpointCache,
    CheckpointUploads,
)
from worker_agent.protocol.checkpoint import MARKER, Marker, Restore, name_of
from worker_agent.protocol.job.gang_shape import is_leader
from worker_agent.protocol.states import Role
from worker_agent.replica.checkpoint_folder import (
    complete_in,
    open_plain,
    parts_of,
    prune,
    read_marker,
    remove,
    write_marker,
)

KEY = ReplicaKey(7, 2)


def write(folder: Path, step: int, content: bytes = b"values") -> str:
    """A complete checkpoint, as a training writes it; its marker's digest."""
    place = folder / name_of(step=step, attempt=2)
    place.mkdir(parents=True)
    (place / "state.index").write_bytes(b"index")
    (place / "state.data").write_bytes(content)
    marker = Marker(
        name=place.name,
        job_id=1,
        attempt=2,
        at=1.0,
        step=step,
        epoch=0,
        total_steps=100,
        steps_per_epoch=10,
        global_batch_size=16,
        seed=0,
        rate=None,
        metrics={},
        files=parts_of(place),
        variables=[],
        versions={},
    )
    return write_marker(place, marker)


class FakeStore:
    """The control plane's store. Does as many requests wrong as it is told to."""

    def __init__(self, *, failures: int = 0, failure: Exception | None = None) -> None:
        self.failures, self.failure = failures, failure or Unreachable("connection refused")
        self.markers: dict[str, bytes] = {}
        self.files: dict[str, dict[str, bytes]] = {}
        self.complete: list[str] = []
        self.taken = threading.Event()

    def _fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise self.failure

    def offer_checkpoint(self, marker: bytes, *, name: str, replica_id: int, attempt: int) -> list[str]:
        assert (replica_id, attempt) == KEY
        self._fail()
        self.markers[name] = marker
        wanted = msgspec.json.decode(marker, type=Marker).files
        missing = [file for file in wanted if file not in self.files.setdefault(name, {})]
        if not missing and name not in self.complete:
            self.complete.append(name)
            self.taken.set()
        return missing

    def upload_checkpoint(self, file: Path, *, replica_id: int, attempt: int) -> None:
        self._fail()
        with open_plain(file) as content:  # as the true one reads
            self.files[file.parent.name][file.name] = content.read()

    def download_checkpoint(self, checkpoint_id: int, name: str, target: Path, *, sha256: str, size_max: int) -> None:
        self._fail()
        stored = next(iter(self.files))
        data = self.markers[stored] if name == MARKER else self.files[stored][name]
        if hashlib.sha256(data).hexdigest() != sha256:
            raise Rejected(200, "The checkpoint that arrived is not the one that was submitted.")
        target.write_bytes(data)


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_transfer, "POLL_S", 0.01)


@pytest.fixture
def stores() -> Iterator[list[CheckpointUploads]]:
    started: list[CheckpointUploads] = []
    yield started
    for each in started:
        each.close()


def deliver(store: FakeStore, folder: Path, stores: list[CheckpointUploads]) -> None:
    """Until the replica, which has ended, is settled."""
    done = threading.Event()
    stores.append(CheckpointUploads(store, lambda key: done.set() if key == KEY else None))
    stores[-1].follow(KEY, folder)
    stores[-1].finish(KEY)
    assert done.wait(10)


def test_each_complete_one_arrives_although_the_control_plane_was_away(tmp_path: Path, stores) -> None:
    for step in (20, 10):
        write(tmp_path, step)
    (tmp_path / name_of(step=30, attempt=2)).mkdir()
    (tmp_path / name_of(step=30, attempt=2) / "state.data").write_bytes(b"no marker yet")
    store = FakeStore(failures=3)
    deliver(store, tmp_path, stores)
    assert store.complete == [name_of(step=20, attempt=2), name_of(step=10, attempt=2)], "the newest first"
    assert store.files[name_of(step=20, attempt=2)] == {"state.index": b"index", "state.data": b"values"}
    again = FakeStore()
    deliver(again, tmp_path, stores)
    assert again.complete == []


def test_one_that_the_training_drops_meanwhile_arrives_all_the_same(tmp_path: Path, stores) -> None:
    write(tmp_path, 10)
    store = FakeStore(failures=10**6)
    stores.append(CheckpointUploads(store, lambda _: None))
    stores[-1].follow(KEY, tmp_path)
    aside = tmp_path / ".outgoing" / name_of(step=10, attempt=2)
    deadline = threading.Event()
    while not aside.exists():
        assert not deadline.wait(0.01)
    remove(tmp_path / name_of(step=10, attempt=2))
    store.failures = 0
    assert store.taken.wait(10)
    assert complete_in(tmp_path) == {}


def test_of_those_that_the_training_has_dropped_only_the_newest_is_sent(tmp_path: Path, stores) -> None:
    for step in (10, 20, 30):
        write(tmp_path, step)
    store = FakeStore(failures=10**6)
    stores.append(CheckpointUploads(store, lambda _: None))
    stores[-1].follow(KEY, tmp_path)
    outgoing = tmp_path / ".outgoing"
    deadline = threading.Event()
    while not all((outgoing / name_of(step=step, attempt=2)).exists() for step in (10, 20, 30)):
        assert not deadline.wait(0.01)
    for step in (10, 20):
        remove(tmp_path / name_of(step=step, attempt=2))
    store.failures = 0
    assert store.taken.wait(10)
    deliver(store, tmp_path, stores)
    assert store.complete == [name_of(step=30, attempt=2)]
    assert list(outgoing.iterdir()) == []


def test_what_a_killed_process_had_begun_goes_with_those_that_do_not_count(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        write(tmp_path, step)
    (tmp_path / name_of(step=20, attempt=2) / MARKER).unlink()
    (tmp_path / "notes").mkdir()
    (tmp_path / name_of(step=10, attempt=3)).mkdir()  # a launch that began later is writing it
    prune(tmp_path, spare={name_of(step=30, attempt=2)}, attempt=2)
    left = ["notes", name_of(step=10, attempt=3), name_of(step=30, attempt=2)]
    assert sorted(path.name for path in tmp_path.iterdir()) == left


def test_a_refused_one_holds_up_nothing_and_links_are_not_followed(tmp_path: Path, stores) -> None:
    secret = tmp_path / "agent.json"
    secret.write_bytes(b"key")
    folder = tmp_path / "checkpoints"
    write(folder, 20)
    place = folder / name_of(step=10, attempt=2)
    write(folder, 10)
    (place / "state.data").unlink()
    (place / "state.data").symlink_to(secret)
    store = FakeStore(failures=1, failure=Rejected(409, "The replica belongs to attempt 3."))
    deliver(store, folder, stores)
    assert b"key" not in [data for files in store.files.values() for data in files.values()]
    assert store.complete == []


def test_a_gang_fetches_it_once_whole_or_not_at_all(tmp_path: Path, stores) -> None:
    sha256 = write(tmp_path / "written", 10)
    store = FakeStore()
    deliver(store, tmp_path / "written", stores)
    journal = Journal(tmp_path, notify="")
    restore = Restore(checkpoint_id=5, job_id=1, name=name_of(step=10, attempt=2), sha256=sha256, step=10, epoch=0)
    folder = journal.fetched(restore)
    cache = CheckpointCache(store)
    store.failures = 1
    cache.fetch(restore, folder, wait=lambda _: False)
    marker = read_marker(folder)
    assert marker is not None
    assert sorted(path.name for path in folder.iterdir()) == sorted([MARKER, *marker.files])
    store.failures = 10**6
    cache.fetch(restore, folder, wait=lambda _: False)
    (folder / "state.data").write_bytes(b"valueS")
    with pytest.raises(NotFetched, match="could not be fetched"):
        cache.fetch(restore, folder, wait=lambda _: True)
    store.failures = 0
    store.files[restore.name]["state.data"] = b"others"
    with pytest.raises(NotFetched, match="did not give"):
        cache.fetch(restore, folder, wait=lambda _: False)
    assert read_marker(folder) is None


def test_an_attempts_checkpoints_go_with_its_last_replica(tmp_path: Path) -> None:
    journal = Journal(tmp_path, notify="")
    first, second = (make_launch(replica_id=number, index=number - 1) for number in (1, 2))
    for launch in (first, second):
        journal.record(launch)
    plan, _ = journal.write_plan(first)
    write(Path(plan.checkpoints), 10)
    journal.remove(ReplicaKey(1, first.attempt))
    assert Path(plan.checkpoints).exists()
    journal.remove(ReplicaKey(2, second.attempt))
    assert not Path(plan.checkpoints).exists()


def test_one_process_of_a_gang_leads() -> None:
    assert is_leader(Role.WORKER, 0, has_chief=False)
    assert not is_leader(Role.WORKER, 1, has_chief=False)
    assert not is_leader(Role.WORKER, 0, has_chief=True)
    assert is_leader(Role.CHIEF, 0, has_chief=True)
    assert not is_leader(Role.PS, 0, has_chief=True)
