"""Files of jobs: streamed, checked, kept once, handed to those who may see the job."""

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.contrib.auth.models import AnonymousUser

from orchestrator import live
from orchestrator.models import Artifact, Replica, User
from orchestrator.queries.errors import NotFound
from orchestrator.services import artifacts
from orchestrator.services.errors import Conflict, Invalid
from tests.factories import make_job, make_node

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
            for name in ("", ".", "..", "../x", "a/b", "a\\b", ".hidden", "a\0b", "a\nb", "x" * 201)
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
