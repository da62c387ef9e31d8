"""Deleting a job: what goes, what stays, and when it is refused."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from orchestrator.models import Artifact, Checkpoint, Command, Event, Job, LogChunk, Replica, User
from orchestrator.services import outbox
from orchestrator.services.errors import Conflict, Forbidden
from orchestrator.services.gang import gang
from orchestrator.services.jobs import deleting
from tests.factories import make_job, make_replica
from worker_agent.protocol import commands
from worker_agent.protocol.codec import decode_command
from worker_agent.protocol.states import JobStatus, NodeState, ReplicaStatus


@pytest.fixture
def ended(member: User) -> Job:
    """A job that has ended, with a file, a checkpoint and a line of log."""
    job = make_job(owner=member, status=JobStatus.SUCCEEDED, name="old")
    replica = make_replica(job, status=ReplicaStatus.EXITED, held=False)
    LogChunk.objects.create(replica=replica, start=0, end=2, at=1.0, text="a\n")
    Artifact.objects.create(job=job, attempt=1, name="model.keras", size_bytes=1, sha256="0" * 64)
    Checkpoint.objects.create(job=job, name="step-0000000020-a1", attempt=1, step=20, epoch=1, size_bytes=1, sha256="0")
    return job


def test_rows_and_files_are_gone_and_a_line_stays(
    ended: Job, member: User, settings: Any, tmp_path: Path, django_capture_on_commit_callbacks: Callable[..., Any]
) -> None:
    settings.ARTIFACT_ROOT, settings.CHECKPOINT_ROOT = tmp_path / "a", tmp_path / "c"
    folders = [tmp_path / "a" / str(ended.artifacts.get().pk), tmp_path / "c" / str(ended.pk)]
    kept = tmp_path / "c" / str(ended.pk + 1)
    for folder in (*folders, kept):
        folder.mkdir(parents=True)
        (folder / "file").write_text("x")
    number = ended.pk
    with django_capture_on_commit_callbacks(execute=True):
        deleting.delete_job(job_id=number, by=member)
    assert not any(folder.exists() for folder in folders)
    assert kept.exists()
    assert not Job.objects.exists()
    assert not Replica.objects.exists()
    event = Event.objects.get()
    assert (event.kind, event.actor) == ("job_deleted", member)
    assert f"deleted j-{number} (old)" in event.text


def test_what_is_not_over_or_still_wanted_is_kept(ended: Job, member: User, viewer: User, teammate: User) -> None:
    for person in (viewer, teammate):
        with pytest.raises(Forbidden):
            deleting.delete_job(job_id=ended.pk, by=person)
    heir = make_job(owner=member, spec={"resume_from": ended.checkpoints.get().pk})
    with pytest.raises(Conflict, match=f"j-{heir.pk} starts from a checkpoint"):
        deleting.delete_job(job_id=ended.pk, by=member)
    with pytest.raises(Conflict, match="has not ended"):
        deleting.delete_job(job_id=heir.pk, by=member)
    Job.objects.filter(pk=heir.pk).update(status=JobStatus.STOPPED.value)
    ended.replicas.update(held=True)
    with pytest.raises(Conflict, match="still being ended"):
        deleting.delete_job(job_id=ended.pk, by=member)
    assert Job.objects.count() == 2


def test_nodes_are_told_to_remove_their_folders(ended: Job, member: User) -> None:
    now = datetime.now(UTC)
    (first,) = ended.replicas.all()
    answered, unanswered, lost, nowhere = [
        make_replica(ended, index=index, attempt=index, status=ReplicaStatus.EXITED, held=False)
        for index in range(2, 6)
    ]
    Command.objects.create(node=answered.node, replica=answered, kind="forget", body=b"", acked_at=now)
    Command.objects.create(node=unanswered.node, replica=unanswered, kind="forget", body=b"")
    lost.node.state = NodeState.LOST.value
    lost.node.save()
    nowhere.node.delete()
    expected = [(each.node_id, each.pk, each.attempt) for each in (first, unanswered, lost)]

    deleting.delete_job(job_id=ended.pk, by=member)

    told = [(row.node_id, decode_command(bytes(row.body))) for row in Command.objects.order_by("pk")]
    assert all(isinstance(forget, commands.Forget) for _, forget in told)
    assert [(node_id, forget.replica_id, forget.attempt) for node_id, forget in told] == expected
    assert outbox.resend(now=now + timedelta(seconds=60)) == 2  # the lost node hears of it when it is back
    for row in Command.objects.select_related("node"):
        gang.on_ack(node=row.node, command_id=row.pk, refused="", now=now)
    assert outbox.resend(now=now + timedelta(hours=1)) == 0
