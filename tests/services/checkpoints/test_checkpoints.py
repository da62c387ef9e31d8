"""Checkpoints in the control plane: noted, stored, dropped, and what a launch begins with."""

import hashlib
import io
import tarfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from django.contrib.auth.models import AnonymousUser
from django.test import TestCase

from orchestrator.models import Attempt, Checkpoint, Cluster, Job, Replica, User
from orchestrator.queries import checkpoints as queries
from orchestrator.queries.errors import NotFound
from orchestrator.services.checkpoints import checkpoint_registry, checkpoint_store
from orchestrator.services.errors import Conflict, Invalid
from orchestrator.services.jobs import dispatch, jobs, submission
from tests.factories import make_job, make_node, make_replica
from tests.services.gang.gangs import end, later, launch, make_gang_job, make_lab, run
from worker_agent.protocol.checkpoint import MARKER, Marker, Part, name_of
from worker_agent.protocol.records import Checkpointed
from worker_agent.protocol.states import Cause, JobStatus, ReplicaStatus, Role, Strategy

CONTENT = {"state.index": b"index", "state.data-00000-of-00001": b"values" * 100}


@pytest.fixture(autouse=True)
def root(tmp_path: Path, settings: object) -> Path:
    settings.CHECKPOINT_ROOT = tmp_path / "checkpoints"  # type: ignore[attr-defined]
    return tmp_path / "checkpoints"


def marker_of(replica: Replica, step: int, **changes: object) -> bytes:
    files = {
        name: Part(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data)) for name, data in CONTENT.items()
    }
    values: dict[str, object] = {
        "name": name_of(step=step, attempt=replica.attempt),
        "job_id": replica.job_id,
        "attempt": replica.attempt,
        "at": 1.0,
        "step": step,
        "epoch": step // 10,
        "total_steps": 100,
        "steps_per_epoch": 10,
        "global_batch_size": 16,
        "seed": 0,
        "rate": 0.1,
        "metrics": {"val_loss": 1 / step},
        "files": files,
        "variables": [],
        "versions": {},
    }
    return msgspec.json.encode(Marker(**(values | changes)))  # type: ignore[arg-type]


def send(replica: Replica, step: int, **changes: object) -> Checkpoint:
    """Everything of a checkpoint, as its agent sends it."""
    marker = marker_of(replica, step, **changes)
    address = {"node": replica.node, "replica_id": replica.pk, "attempt": replica.attempt}
    name = name_of(step=step, attempt=replica.attempt)
    for file in checkpoint_store.offer(**address, marker=marker).missing:
        checkpoint_store.take(**address, name=name, file=file, chunks=[CONTENT[file]])
    row = checkpoint_store.offer(**address, marker=marker).row
    assert row is not None
    return row


def say(replica: Replica, step: int, *, shared: bool = False, kept: list[str] | None = None) -> None:
    checkpoint_registry.note(
        replica,
        Checkpointed(
            at=1.0,
            name=name_of(step=step, attempt=replica.attempt),
            step=step,
            epoch=step // 10,
            metrics={"loss": float("nan")},
            size_bytes=10,
            sha256="0" * 64,
            shared=shared,
            kept=kept or [],
            seconds=0.1,
        ),
    )


def test_one_is_usable_when_all_of_it_has_arrived(root: Path) -> None:
    replica = make_replica()
    say(replica, 20)
    (row,) = queries.of_job(replica.job)
    assert (row.where, row.usable, row.metrics) == ("node", False, {"loss": "NaN"})
    address = {"node": replica.node, "replica_id": replica.pk, "attempt": replica.attempt}
    offered = checkpoint_store.offer(**address, marker=marker_of(replica, 20))
    assert (sorted(offered.missing), offered.row) == (sorted(CONTENT), None)
    checkpoint_store.take(
        **address, name=row.name, file="state.index", chunks=iter([CONTENT["state.index"][:2], b"dex"])
    )
    assert checkpoint_store.offer(**address, marker=marker_of(replica, 20)).missing == ["state.data-00000-of-00001"]
    with pytest.raises(Invalid):
        checkpoint_store.take(**address, name=row.name, file="state.data-00000-of-00001", chunks=[b"torn"])
    assert send(replica, 20).pk == row.pk
    (row,) = queries.of_job(replica.job)
    assert (row.where, row.step, row.metrics) == ("store", 20, {"val_loss": 0.05})
    place = root / str(replica.job_id) / row.name
    assert sorted(path.name for path in place.iterdir()) == sorted([MARKER, *CONTENT])
    assert hashlib.sha256((place / MARKER).read_bytes()).hexdigest() == row.sha256
    assert send(replica, 20).pk == row.pk
    assert not list((root / ".incoming").iterdir())


def test_the_store_keeps_the_last_ones_and_the_best_and_what_a_job_waits_for(root: Path) -> None:
    replica = make_replica(make_job(status=JobStatus.RUNNING, spec={"checkpoints_kept": 2}))
    losses = {10: 0.5, 20: 0.1, 30: 0.4, 40: 0.3, 50: 0.2}
    rows = {step: send(replica, step, metrics={"val_loss": losses[step]}) for step in (10, 20)}
    waiting = make_job(spec={"resume_from": rows[10].pk})
    rows |= {step: send(replica, step, metrics={"val_loss": losses[step]}) for step in (30, 40, 50)}
    assert [(row.step, row.is_best) for row in queries.of_job(replica.job)] == [
        (50, False),
        (40, False),
        (20, True),
        (10, False),
    ]
    Job.objects.filter(pk=waiting.pk).update(status=JobStatus.STOPPED)
    send(replica, 60, metrics={"val_loss": 0.9})
    assert [row.step for row in queries.of_job(replica.job)] == [60, 50, 20]
    assert len(list((root / str(replica.job_id)).iterdir())) == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "../../etc"},
        {"name": "step-0000000021-a1"},
        {"files": {}},
        {"files": {"../x": Part(sha256="0" * 64, size_bytes=1)}},
        {"files": {MARKER: Part(sha256="0" * 64, size_bytes=1)}},
        {"epoch": -1},
    ],
)
def test_what_is_no_checkpoint_is_refused(root: Path, changes: dict[str, object]) -> None:
    replica = make_replica()
    address = {"node": replica.node, "replica_id": replica.pk, "attempt": replica.attempt}
    with pytest.raises(Invalid):
        checkpoint_store.offer(**address, marker=marker_of(replica, 20, **changes))
    with pytest.raises(Invalid):
        checkpoint_store.offer(**address, marker=b"{")
    assert not root.exists()


def test_only_its_own_node_and_attempt_may_send_and_only_files_that_were_offered() -> None:
    replica = make_replica()
    marker = marker_of(replica, 20)
    with pytest.raises(NotFound):
        checkpoint_store.offer(node=make_node(), replica_id=replica.pk, attempt=1, marker=marker)
    with pytest.raises(Conflict):
        checkpoint_store.offer(node=replica.node, replica_id=replica.pk, attempt=2, marker=marker)
    given_up = make_replica(make_job(attempt=2), attempt=1, status=ReplicaStatus.LOST)
    with pytest.raises(Conflict, match="given up"):
        checkpoint_store.offer(node=given_up.node, replica_id=given_up.pk, attempt=1, marker=marker)
    address = {"node": replica.node, "replica_id": replica.pk, "attempt": 1}
    for name in ("step-0000000020-a1", "..", "../../x"):
        with pytest.raises(NotFound):
            checkpoint_store.take(**address, name=name, file="state.index", chunks=[b"index"])
    checkpoint_store.offer(**address, marker=marker)
    with pytest.raises(NotFound):
        checkpoint_store.take(**address, name="step-0000000020-a1", file="other", chunks=[b"index"])


def test_a_gang_that_is_launched_again_goes_on_from_the_newest(now, gateway, django_capture_on_commit_callbacks):
    job = make_gang_job(make_lab())
    first = run(job, now)
    send(first[0], 10)
    newest = send(first[0], 20)
    end(first[0], Cause.AGENT_SHUTDOWN, now)
    end(first[1], Cause.AGENT_SHUTDOWN, later(now, 3))
    job.refresh_from_db()
    assert job.status == JobStatus.SUBMITTED
    with django_capture_on_commit_callbacks(execute=True):
        launch(job, later(now, 4))
    assert (job.attempt, job.step, job.epoch, job.metrics) == (2, 20, 2, {"val_loss": 0.05})
    assert [command.restore.name for command in gateway.commands[-2:]] == [newest.name] * 2
    assert gateway.commands[-1].restore.sha256 == newest.sha256
    attempt = Attempt.objects.get(job=job, number=2)
    assert (attempt.resumed_from, attempt.resumed_step) == (newest, 20)
    told = job.events.filter(text__contains="Attempt 2").get().text
    assert told.endswith("It continues from the checkpoint at step 20.")
    node = job.replicas.filter(attempt=2).first().node
    file, size = checkpoint_store.open_for(node, newest.pk, "state.index")
    assert (file.read(), size) == (b"index", 5)
    file.close()
    for other, name in ((make_node(), "state.index"), (node, "nothing"), (node, "../x")):
        with pytest.raises(NotFound):
            checkpoint_store.open_for(other, newest.pk, name)


def test_one_whose_files_are_gone_is_passed_over(root: Path) -> None:
    replica = make_replica()
    older, newer = send(replica, 10), send(replica, 20)
    assert begins(replica.job) == newer
    (root / str(replica.job_id) / newer.name / MARKER).unlink()
    assert begins(replica.job) == older


def test_a_launch_waits_for_the_one_that_is_on_its_way_but_not_for_ever(enqueued) -> None:
    replica = make_replica(make_job(status=JobStatus.RESTARTING))
    older = send(replica, 10)
    say(replica, 20)
    assert begins(replica.job) == checkpoint_registry.NotThere(
        "waits for the checkpoint at step 20, which is on its way from its node"
    )
    assert begins(replica.job, later_s=31) == older
    Job.objects.filter(pk=replica.job_id).update(status=JobStatus.SUBMITTED)
    with TestCase.captureOnCommitCallbacks(execute=True):
        newer = send(replica, 20)
    assert begins(replica.job) == newer
    assert enqueued == ["trainyard.dispatch"]


def begins(job: Job, *, later_s: float = 0) -> object:
    """What a launch of the job begins with, so many seconds from now."""
    return checkpoint_registry.to_begin_with(job, job.typed_spec, now=later(datetime.now(UTC), later_s))


def test_in_a_shared_folder_the_training_decides_what_is_kept(now) -> None:
    cluster = make_lab()
    Cluster.objects.filter(pk=cluster.pk).update(checkpoint_place="/mnt/ck")
    job = make_gang_job(cluster)
    replica = launch(job, now)[0]
    say(replica, 10, shared=True, kept=["step-0000000010-a1"])
    say(replica, 20, shared=True, kept=["step-0000000020-a1"])
    (row,) = queries.of_job(job)
    assert (row.where, row.step, row.place) == ("folder", 20, f"/mnt/ck/j-{job.pk}")
    wanted = msgspec.structs.replace(job.typed_spec, resume_from=row.pk, cluster=job.cluster.name, epochs=9)
    ((_, live),) = checkpoint_registry.resume_point(wanted, by=job.owner).errors
    assert "wait until it ends, or stop it" in live
    Job.objects.filter(pk=job.pk).update(status=JobStatus.SUCCEEDED.value)
    assert checkpoint_registry.resume_point(wanted, by=job.owner).errors == ()
    restore = checkpoint_registry.restore_for(row, role=Role.WORKER, strategy=Strategy.MULTI_WORKER_MIRRORED)
    assert restore.folder == f"/mnt/ck/j-{job.pk}/step-0000000020-a1"
    with pytest.raises(Conflict):
        checkpoint_store.archive(user=job.owner, job_id=job.pk, checkpoint_id=row.pk)


def test_parameter_servers_read_it_in_the_chief_alone() -> None:
    row = send(make_replica(), 20)
    reading = [
        role
        for role in Role
        if checkpoint_registry.restore_for(row, role=role, strategy=Strategy.PARAMETER_SERVER) is not None
    ]
    assert reading == [Role.CHIEF]


def test_a_job_begins_with_the_checkpoint_of_another(now, gateway, django_capture_on_commit_callbacks) -> None:
    source = make_replica(make_job(status=JobStatus.SUCCEEDED))
    row = send(source, 20)
    job = make_job(cluster=make_lab(), spec={"resume_from": row.pk})
    with django_capture_on_commit_callbacks(execute=True):
        launch(job, now)
    assert gateway.commands[-1].restore.checkpoint_id == row.pk
    assert f"at step 20 of j-{source.job_id}." in job.events.latest("pk").text
    job.refresh_from_db()
    assert (job.step, job.epoch, job.metrics) == (0, 0, {})  # none of its own before it has taken it up
    gone = make_job(cluster=make_lab(), spec={"resume_from": 999})
    assert dispatch.dispatch_job(job_id=gone.pk, now=now) is False
    gone.refresh_from_db()
    assert gone.waiting_for == "The checkpoint 999, from which it starts, no longer exists."


@pytest.fixture
def asking(member: User) -> Callable[..., str]:
    """What is wrong with a job that begins with the checkpoint, by its owner."""

    def ask(row: Checkpoint, *, by: User = member, **spec: object) -> str:
        wanted = {"resume_from": row.pk, "global_batch_size": 16, "epochs": 9} | spec
        described = make_job(cluster=row.job.cluster, spec=wanted).typed_spec
        return "".join(sentence for _, sentence in checkpoint_registry.resume_point(described, by=by).errors)

    return ask


def test_what_cannot_be_resumed_is_refused_with_the_reason(asking, root: Path) -> None:
    replica = make_replica(make_job(status=JobStatus.RUNNING))
    row = send(replica, 20)
    assert asking(row) == ""
    assert asking(row, strategy=Strategy.MULTI_WORKER_MIRRORED, workers=3) == ""
    assert "there is no checkpoint" in asking(row, resume_from=row.pk + 1)
    assert "there is no checkpoint" in asking(row, by=AnonymousUser())
    assert "global batch of 16" in asking(row, global_batch_size=32)
    assert "written under One device" in asking(row, strategy=Strategy.PARAMETER_SERVER, workers=2, ps=1)
    say(replica, 30)
    assert "on its way" in asking(Checkpoint.objects.get(step=30))
    (root / str(replica.job_id) / row.name / MARKER).unlink()
    assert "no longer on the control plane" in asking(row)


def test_a_batch_that_does_not_divide_is_never_mended_against_the_checkpoint(member: User) -> None:
    row = send(make_replica(make_job(status=JobStatus.RUNNING)), 20)  # written with a global batch of 16
    lab = make_lab(nodes=3)
    request = {"name": "t", "cluster": lab.name, "recipe": "digits_mlp", "strategy": "multi_worker_mirrored"}

    def found(**fields: object) -> tuple[tuple[int, ...], dict[str, str]]:
        preview = submission.check(request | {"resume_from": row.pk} | fields, by=member)
        return preview.nearest, {error.field: error.message for error in preview.errors}

    nearest, errors = found(workers=3, global_batch_size=16)
    assert nearest == ()
    assert "requires a global batch of 16, which does not divide over 3 workers" in errors["global_batch_size"]
    nearest, errors = found(workers=2, global_batch_size=15)
    assert nearest == (16,)
    assert "use 16, as its checkpoint does" in errors["global_batch_size"]
    assert "global batch of 16" in errors["resume_from"]


def test_other_hyper_parameters_are_told_before_the_job_starts(member: User) -> None:
    written = {"params": {"units": 8}, "epochs": 9}
    row = send(make_replica(make_job(status=JobStatus.RUNNING, spec=written)), 20)
    request = {"name": "t", "cluster": make_lab().name, "recipe": "digits_mlp", "strategy": "one_device", "epochs": 3}
    request |= {"resume_from": row.pk, "global_batch_size": 16, "params": {"units": 16}}
    checked = submission.check(request, by=member)
    assert checked.errors == []
    assert "was written with units 8" in checked.findings[0].sentence


def test_one_sentence_stands_at_a_field(member: User) -> None:
    row = send(make_replica(make_job(status=JobStatus.RUNNING)), 20)
    request = {"name": "t", "cluster": make_lab().name, "recipe": "digits_mlp", "strategy": "parameter_server"}
    fields = {"resume_from": row.pk, "global_batch_size": 16, "workers": 2, "ps": 1}
    script = {"kind": "script", "code": {"filename": "a.py", "text": "1"}, "recipe": "", "strategy": "mirrored"}
    for given in (fields, fields | {"strategy": "pipeline", "ps": 0}, script | {"tf_config": "{}"}):
        named = [error.field for error in submission.check(request | given, by=member).errors]
        assert named
        assert len(named) == len(set(named))
    said = {error.field: error.message for error in submission.check(request | fields, by=member).errors}
    assert "choose One device or Mirrored or" in said["resume_from"]
    assert "any number of processes and devices" in said["resume_from"]


def test_people_get_it_as_an_archive(viewer: User) -> None:
    replica = make_replica()
    row = send(replica, 20)
    _, pieces = checkpoint_store.archive(user=viewer, job_id=replica.job_id, checkpoint_id=row.pk)
    with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as content:
        assert sorted(content.getnames()) == sorted(f"{row.name}/{name}" for name in [MARKER, *CONTENT])
        member = content.extractfile(f"{row.name}/state.index")
        assert member is not None
        assert member.read() == b"index"
    with pytest.raises(NotFound):
        checkpoint_store.archive(user=viewer, job_id=make_job().pk, checkpoint_id=row.pk)


def test_a_job_is_resumed_as_a_new_one(member: User) -> None:
    replica = make_replica(make_job(owner=member, status=JobStatus.RUNNING, spec={"epochs": 3}))
    row = send(replica, 20)
    last = send(replica, 30)
    with pytest.raises(Conflict, match="already has epoch 3: set 4 epochs or more"):
        jobs.start_from_checkpoint(job_id=replica.job_id, checkpoint_id=last.pk, by=member)
    again = jobs.start_from_checkpoint(job_id=replica.job_id, checkpoint_id=row.pk, by=member)
    assert again.typed_spec.resume_from == row.pk
    assert again.retry_of == replica.job
    assert "from the checkpoint at step 20" in again.events.get().text
