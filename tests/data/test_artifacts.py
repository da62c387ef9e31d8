"""Files of jobs: streamed, checked, kept once, handed to those who may see the job."""

import hashlib
import io
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from django.contrib.auth.models import AnonymousUser
from django.test import TestCase

from orchestrator import live
from orchestrator.models import Artifact, Job, Replica, User
from orchestrator.queries.errors import NotFound
from orchestrator.services import artifacts
from orchestrator.services.errors import Conflict, Invalid
from tests.factories import make_job, make_node, make_replica
from worker_agent.protocol.files import LeftFile, NotKept, Offer
from worker_agent.protocol.states import JobStatus, Kind

pytestmark = pytest.mark.django_db

CONTENT = b"PK model " * 1000


@pytest.fixture(autouse=True)
def root(tmp_path: Path, settings: object) -> Path:
    settings.ARTIFACT_ROOT = tmp_path / "artifacts"  # type: ignore[attr-defined]
    settings.MAX_ARTIFACT_BYTES = 20_000  # type: ignore[attr-defined]
    return tmp_path / "artifacts"


def store(replica: Replica, *, content: bytes = CONTENT, **changes: object) -> Artifact:
    words: dict[str, object] = {
        "node": replica.node,
        "replica_id": replica.pk,
        "attempt": replica.attempt,
        "name": "model.keras",
        "chunks": (content[at : at + 100] for at in range(0, len(content), 100)),
        "sha256": hashlib.sha256(content).hexdigest(),
        "metrics": {"val_accuracy": 0.97, "loss": float("nan")},
    }
    return artifacts.store(**(words | changes))  # type: ignore[arg-type]


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_a_file_is_kept_and_handed_out(
    replica: Replica,
    root: Path,
    viewer: User,
    told: dict[str, list[live.LiveEvent]],
    django_capture_on_commit_callbacks: object,
) -> None:
    with django_capture_on_commit_callbacks(execute=True):  # type: ignore[operator]
        artifact = store(replica)
    assert files(root) == [f"{artifact.pk}/model.keras"]
    assert (artifact.size_bytes, artifact.kind, artifact.metrics) == (
        9000,
        "model",
        {"val_accuracy": 0.97, "loss": "NaN"},
    )
    found, file = artifacts.open_file(user=viewer, job_id=replica.job_id, artifact_id=artifact.pk)
    with file:
        assert (found, file.read()) == (artifact, CONTENT)
    kinds = [event["kind"] for event in told[live.job_group(replica.job_id)]]
    assert kinds == ["event", "artifact"]


def test_the_same_file_again_changes_nothing_and_other_content_replaces_it(replica: Replica, root: Path) -> None:
    first = store(replica)
    again = store(replica, chunks=iter(()))
    other = store(replica, content=b"other")
    assert first.pk == again.pk == other.pk
    assert artifacts.path_of(other).read_bytes() == b"other"
    assert other.size_bytes == 5
    assert files(root) == [f"{first.pk}/model.keras"]
    artifacts.path_of(other).unlink()
    store(replica, content=b"other")
    assert artifacts.path_of(other).read_bytes() == b"other"


def broken() -> Iterator[bytes]:
    yield CONTENT[:100]
    raise ConnectionError("the agent went away")


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"sha256": "0" * 64}, Invalid),
        ({"sha256": "ä"}, Invalid),
        ({"chunks": [b"x" * 20_001]}, Invalid),
        ({"chunks": broken()}, ConnectionError),
        ({"attempt": 2}, Conflict),
        ({"replica_id": 10**6}, NotFound),
        *[
            ({"name": name}, Invalid)
            for name in ("", ".", "..", "../x", "a//b", "/a", "a/.b", "a\\b", ".hidden", "a\0b", "a\nb", "x" * 201)
        ],
    ],
)
def test_what_is_wrong_leaves_nothing(
    replica: Replica, root: Path, changes: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        store(replica, **changes)
    assert not Artifact.objects.exists()
    assert not root.exists() or files(root) == []


def test_one_that_was_given_up_leaves_nothing_once_another_was_launched_in_its_place(
    replica: Replica, root: Path
) -> None:
    Replica.objects.filter(pk=replica.pk).update(status="lost")
    store(replica)
    type(replica.job).objects.update(attempt=2)
    with pytest.raises(Conflict, match="given up"):
        store(replica, name="later.keras")
    assert Artifact.objects.count() == 1


def test_another_node_cannot_leave_files(replica: Replica) -> None:
    with pytest.raises(NotFound):
        store(replica, node=make_node(replica.job.cluster))


def test_a_full_disk_is_said(replica: Replica, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=artifacts.FREE_BYTES_KEPT))
    with pytest.raises(artifacts.NoSpace):
        store(replica)
    assert files(root) == []


def test_files_of_a_job_are_found_under_that_job_alone(replica: Replica, member: User) -> None:
    artifact = store(replica)
    for user, job_id, artifact_id in [
        (member, make_job().pk, artifact.pk),
        (member, replica.job_id, artifact.pk + 1),
        (AnonymousUser(), replica.job_id, artifact.pk),
    ]:
        with pytest.raises(NotFound):
            artifacts.open_file(user=user, job_id=job_id, artifact_id=artifact_id)
    artifacts.path_of(artifact).unlink()
    with pytest.raises(NotFound, match="no longer"):
        artifacts.open_file(user=member, job_id=replica.job_id, artifact_id=artifact.pk)


def scripts_replica(*, limit_mb: int = 1, **columns: object) -> Replica:
    spec = {"kind": Kind.SCRIPT, "files_limit_mb": limit_mb}
    return make_replica(make_job(status=JobStatus.RUNNING, spec=spec), **columns)  # type: ignore[arg-type]


def offer(replica: Replica, files: dict[str, int], **more: object) -> list[str]:
    words = {"node": replica.node, "replica_id": replica.pk, "attempt": replica.attempt}
    return artifacts.offer(**words, offer=msgspec.json.encode(Offer(files=files, **more)))  # type: ignore[arg-type]


def left(replica: Replica) -> dict[str, str]:
    replica.refresh_from_db()
    return {file.name: file.why.value for file in replica.typed_files_left.left}


def test_of_what_a_script_offers_as_much_is_wanted_as_its_job_has_room_for(
    settings: object, told: dict[str, list[live.LiveEvent]], django_capture_on_commit_callbacks: object
) -> None:
    settings.MAX_ARTIFACT_BYTES = 900_000  # type: ignore[attr-defined]
    replica = scripts_replica()
    link = LeftFile(name="latest.h5", size_bytes=0, why=NotKept.LINK)
    with django_capture_on_commit_callbacks(execute=True):  # type: ignore[operator]
        wanted = offer(replica, {"a.png": 400_000, "b.h5": 700_000, "c.csv": 600_000, "d.h5": 950_000}, left=[link])
    assert wanted == ["a.png", "c.csv"]
    assert left(replica) == {"latest.h5": "link", "b.h5": "limit", "d.h5": "too_large"}
    assert [event["kind"] for event in told[live.job_group(replica.job_id)]] == ["files"]
    assert offer(replica, {}) == []
    assert left(replica) == {}


def test_the_limit_holds_over_processes_and_for_files_that_were_not_offered(settings: object) -> None:
    settings.MAX_ARTIFACT_BYTES = 10_000_000  # type: ignore[attr-defined]
    first = scripts_replica()
    second = make_replica(first.job, index=1)
    store(first, name="a.bin", content=b"x" * 700_000)
    assert offer(second, {"b.bin": 300_001}) == []
    with pytest.raises(Invalid, match="300,000 bytes"):
        store(second, name="b.bin", content=b"x" * 300_001)
    store(second, name="b.bin", content=b"x" * 300_000)
    store(first, name="a.bin", content=b"y" * 600_000)
    assert offer(second, {"b.bin": 400_000}) == ["b.bin"]


def test_files_of_earlier_attempts_make_room_for_those_of_later_ones(root: Path, settings: object) -> None:
    settings.MAX_ARTIFACT_BYTES = 10_000_000  # type: ignore[attr-defined]
    first = scripts_replica()
    for name in ("old.bin", "older.bin"):
        store(first, name=name, content=b"x" * 400_000)
    Job.objects.filter(pk=first.job_id).update(attempt=2)
    first.job.refresh_from_db()
    later = make_replica(first.job)
    with TestCase.captureOnCommitCallbacks(execute=True):
        store(later, name="new.bin", content=b"x" * 500_000)
    assert sorted(first.job.artifacts.values_list("attempt", "name")) == [(1, "older.bin"), (2, "new.bin")]
    assert [Path(path).name for path in files(root)] == ["older.bin", "new.bin"]


def test_processes_may_leave_files_of_the_same_name(replica: Replica) -> None:
    other = make_replica(replica.job, index=1)
    first, second = store(replica, name="out/model.keras"), store(other, name="out/model.keras", content=b"other")
    assert artifacts.path_of(first).read_bytes() == CONTENT
    assert artifacts.path_of(second).read_bytes() == b"other"
    names = [artifacts.download_name(row) for row in (first, second, store(other, name="log/x.csv"))]
    assert names == ["worker-0-model.keras", "worker-1-model.keras", "x.csv"]


def test_a_folder_is_had_as_one_zip_file(replica: Replica, viewer: User) -> None:
    for name in ("export/saved_model.pb", "export/variables/variables.index", "loss.png"):
        store(replica, name=name)

    def names(**asked: object) -> list[str]:
        asked = {"user": viewer, "job_id": replica.job_id, "attempt": 1} | asked
        packed = zipfile.ZipFile(io.BytesIO(b"".join(artifacts.archive(**asked))))  # type: ignore[arg-type]
        assert packed.testzip() is None
        return packed.namelist()

    assert names(folder="export") == ["export/saved_model.pb", "export/variables/variables.index"]
    assert len(names()) == 3
    store(make_replica(replica.job, index=1), name="loss.png")
    assert names()[-2:] == ["worker-0/loss.png", "worker-1/loss.png"]
    for nothing in ({"attempt": 2}, {"folder": "exp"}, {"job_id": 10**6}, {"user": AnonymousUser()}):
        with pytest.raises(NotFound):
            names(**nothing)


def test_a_thousand_files_are_one_line_of_news_and_none_of_history(
    told: dict[str, list[live.LiveEvent]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "FILES_MAX", 20)
    monkeypatch.setattr(artifacts, "ANNOUNCED_EVERY_S", 1000.0)
    monkeypatch.setattr(artifacts._Announced, "at", {})
    replica = scripts_replica()
    with TestCase.captureOnCommitCallbacks(execute=True):
        for number in range(20):
            store(replica, name=f"{number}.png", content=b"x")
    assert [event["kind"] for event in told[live.job_group(replica.job_id)]] == ["files"]
    assert not replica.job.events.exists()
    with pytest.raises(Conflict, match="no room"):
        store(replica, name="one-more.png", content=b"x")
    store(replica, name="0.png", content=b"again")


@pytest.mark.parametrize("body", [b"", b"[]", b'{"files": {"../x": 1}}', b'{"files": {"a": "b"}}', b"[" * 100_000])
def test_offers_that_are_none(replica: Replica, body: bytes) -> None:
    with pytest.raises(Invalid):
        artifacts.offer(node=replica.node, replica_id=replica.pk, attempt=1, offer=body)  # type: ignore[arg-type]
