"""Rows of checkpoints: noted when a replica says that one is complete, dropped when it is not kept any more, and chosen
when a job is launched. The files in Trainyard's own store are the business of `checkpoint_store.py`.
"""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from django.conf import settings
from django.db.models import QuerySet

from orchestrator import live
from orchestrator.domain.job import resumption
from orchestrator.domain.lifecycle import LIVE_JOB
from orchestrator.domain.words import storable
from orchestrator.models import Attempt, Checkpoint, Job, Node, Replica, User
from orchestrator.queries.jobs import visible_jobs
from worker_agent.protocol.checkpoint import MARKER, Candidate, Marker, Restore, kept_of, order_of
from worker_agent.protocol.findings import Finding
from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.protocol.job.strategies import STRATEGIES
from worker_agent.protocol.records import Checkpointed
from worker_agent.protocol.states import Cause, Kind, NodeState, Role, Strategy

# From its completion to its last byte in the store; then the one before is taken.
STORED_WITHIN = timedelta(seconds=30)
COUNT_MAX = 2**31 - 1
METRICS_KEPT = 100
METRIC_NAME_CHARS = 200
SHA256_CHARS = 64


@dataclass(frozen=True)
class NotThere:
    """The checkpoint that the job is to begin with is gone, or still on its way: the job waits."""

    message: str


def note(replica: Replica, said: Checkpointed) -> None:
    """A replica says that a checkpoint is complete. In a shared folder it is usable now; else once it is in the store.

    Called by `records.store` within its transaction. What cannot be a checkpoint is refused with ValueError.
    """
    if order_of(said.name) != (replica.attempt, said.step):
        raise ValueError("a checkpoint has another name")
    attempt = Attempt.objects.filter(job_id=replica.job_id, number=replica.attempt).first()
    place = attempt.checkpoint_place if attempt and said.shared else ""
    row, _ = Checkpoint.objects.get_or_create(
        job_id=replica.job_id,
        name=said.name,
        defaults=columns_of(said, attempt=replica.attempt, sha256=said.sha256)
        | {"place": place, "usable": bool(place)},
    )
    if place:
        # In a folder that the nodes share, the training itself drops what is not kept.
        job_rows = Checkpoint.objects.filter(job_id=replica.job_id, place=place)
        job_rows.exclude(pk=row.pk).exclude(name__in=said.kept[:1000]).delete()
    live.announce(live.job_group(replica.job_id), [live.checkpoints_changed()])


def columns_of(said: Checkpointed | Marker, *, attempt: int, sha256: str) -> dict[str, object]:
    """What a row holds of what a node says; raises ValueError for numbers that no row can hold."""
    if not 0 <= said.epoch <= COUNT_MAX or not 0 <= said.size_bytes < 2**63 or len(sha256) != SHA256_CHARS:
        raise ValueError("a number of a checkpoint is out of range")
    named = list(said.metrics.items())[:METRICS_KEPT]
    return {
        "attempt": attempt,
        "step": said.step,
        "epoch": said.epoch,
        "metrics": {storable(name)[:METRIC_NAME_CHARS]: live.jsonable(value) for name, value in named},
        "size_bytes": said.size_bytes,
        "sha256": sha256,
    }


def drop_unkept(job: Job) -> None:
    """Let go of what the job's own store holds beyond its last ones and the best. Waits for nobody, but what another
    job is still to begin with stays."""
    rows = list(Checkpoint.objects.filter(job=job, place="", usable=True))
    if rows:  # what a lost node never sent; should it come after all, it is weighed then
        first = rows[0]
        late = Checkpoint.objects.filter(job=job, place="", usable=False, attempt__lte=first.attempt)
        late.exclude(attempt=first.attempt, step__gt=first.step).delete()
    kept = kept_of(
        [Candidate(row.name, row.attempt, row.step, row.metrics) for row in rows], keep=job.typed_spec.checkpoints_kept
    )
    unkept = {row.pk: row for row in rows if row.name not in kept}
    for pk in waiting_for_any(unkept).values_list("spec__resume_from", flat=True):
        unkept.pop(pk, None)
    for row in unkept.values():
        row.delete()
        shutil.rmtree(folder_of(row), ignore_errors=True)


def waiting_for_any(checkpoints: Iterable[int]) -> QuerySet[Job]:
    """The live jobs that are to begin with one of these."""
    return Job.objects.filter(status__in=LIVE_JOB, spec__resume_from__in=list(checkpoints))


def to_begin_with(job: Job, spec: JobSpec, *, now: datetime) -> Checkpoint | NotThere | None:
    """The newest usable checkpoint of the job's own; else the one it was asked to resume from; None to begin anew.

    One that was completed a moment ago is waited for, and one that was saved for a pause as long as its node is there:
    its agent is sending it.
    """
    for row in Checkpoint.objects.filter(job=job) if job.attempt else ():
        if row.usable and _is_there(row):
            return row
        if not row.usable and (now - row.created_at < STORED_WITHIN or _was_saved_for_a_pause(row)):
            return NotThere(f"waits for the checkpoint at step {row.step}, which is on its way from its node")
    if not spec.resume_from:
        return None
    wanted = Checkpoint.objects.filter(pk=spec.resume_from, usable=True).first()
    if wanted is None or not _is_there(wanted):
        return NotThere(f"The checkpoint {spec.resume_from}, from which it starts, no longer exists.")
    return wanted


def _was_saved_for_a_pause(row: Checkpoint) -> bool:
    """Whether its attempt left because it was paused, and the node that holds it is there."""
    paused = Attempt.objects.filter(job_id=row.job_id, number=row.attempt, cause=Cause.PAUSED.value)
    node = writer_node(row)
    return node is not None and node.state != NodeState.LOST and paused.exists()


def writer_node(row: Checkpoint) -> Node | None:
    """The node on which its gang's leader wrote it, if that is still known."""
    firsts = Replica.objects.filter(job_id=row.job_id, attempt=row.attempt, index=0).select_related("node")
    latest = {replica.role: replica for replica in firsts.order_by("incarnation")}
    writer = latest.get(Role.CHIEF, latest.get(Role.WORKER))
    return writer.node if writer else None


def restore_for(row: Checkpoint, *, role: Role, strategy: Strategy) -> Restore | None:
    """What a process of a gang is told of the checkpoint: those that hold variables of their own read it."""
    reads = role is Role.CHIEF or (role is Role.WORKER and not STRATEGIES[strategy].coordinated)
    if not reads:
        return None
    return Restore(
        checkpoint_id=row.pk,
        job_id=row.job_id,
        name=row.name,
        sha256=row.sha256,
        step=row.step,
        epoch=row.epoch,
        folder=f"{row.place}/{row.name}" if row.place else "",
    )


def place_of(job: Job, shared_folder: str) -> str:
    """Where a job's checkpoints lie in the folder that a cluster shares; "" where it shares none."""
    return f"{shared_folder.rstrip('/')}/j-{job.pk}" if shared_folder else ""


@dataclass(frozen=True)
class ResumePoint:
    """What a job is asked to begin with: `errors` as (field, sentence), and warnings; `batch` is the global batch that
    it holds the job to, 0 while there is none."""

    errors: tuple[tuple[str, str], ...] = ()
    warnings: tuple[Finding, ...] = ()
    batch: int = 0


def resume_point(asked: JobSpec, *, by: User) -> ResumePoint:
    """What is to be said of the checkpoint `asked.resume_from`, for this person; nothing when it names none, or is a
    script, which reads none."""
    if not asked.resume_from or asked.kind is Kind.SCRIPT:
        return ResumePoint()
    rows = Checkpoint.objects.filter(job__in=visible_jobs(by)).select_related("job__cluster")
    row = rows.filter(pk=asked.resume_from).first()
    if row is None:
        lists = "the page of a job and GET /jobs/<id>/checkpoints list its checkpoints"
        return ResumePoint((("resume_from", f"there is no checkpoint {asked.resume_from}: {lists}"),))
    theirs = row.job.typed_spec
    batch = theirs.global_batch_size
    if problem := _problem_of(row, cluster=asked.cluster):
        return ResumePoint((("resume_from", problem),), batch=batch)
    refused = tuple(resumption.refusals(asked, theirs, epoch=row.epoch))
    return ResumePoint(refused, tuple(resumption.warnings(asked, theirs)), batch)


def _problem_of(row: Checkpoint, *, cluster: str) -> str:
    """Why no job of the cluster can begin with it now, in a sentence; "" when one can."""
    if not row.usable:
        return f"the checkpoint at {row} is still on its way from its node: try again in a moment"
    if row.place and cluster and row.job.cluster.name != cluster:
        return f"it is in the shared folder of cluster {row.job.cluster.name}: choose that cluster"
    if row.place and row.job.status in LIVE_JOB:
        return f"j-{row.job_id} still deletes older checkpoints from that folder: wait until it ends, or stop it"
    return "" if _is_there(row) else f"the files of the checkpoint at {row} are no longer on the control plane's disk"


def folder_of(row: Checkpoint) -> Path:
    """Where the files of a checkpoint lie in Trainyard's own store."""
    return Path(settings.CHECKPOINT_ROOT) / str(row.job_id) / row.name


def _is_there(row: Checkpoint) -> bool:
    """What lies in a shared folder is seen by the nodes alone, which pass over what is not whole."""
    return bool(row.place) or (folder_of(row) / MARKER).is_file()
