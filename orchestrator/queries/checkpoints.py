"""Reads about the checkpoints of a job. Pages and REST call these."""

from typing import NamedTuple

from orchestrator.models import Checkpoint, Job
from orchestrator.queries.errors import NotFound
from orchestrator.queries.jobs import Person, visible_jobs
from worker_agent.protocol.checkpoint import Candidate, best_of

SHARED_FOLDER, STORE, ON_ITS_WAY = "folder", "store", "node"


class CheckpointView(NamedTuple):
    """A checkpoint and what follows from the others: `best` by validation loss, else by loss. `where` it lies: in the
    `folder` that the nodes share, in Trainyard's own `store`, or still on its `node`."""

    row: Checkpoint
    best: bool
    where: str


def of_job(job: Job) -> list[CheckpointView]:
    """All there are, newest first."""
    rows = list(job.checkpoints.order_by("-attempt", "-step"))
    best = best_of([Candidate(row.name, row.attempt, row.step, row.metrics) for row in rows])
    return [CheckpointView(row, best is not None and row.name == best.name, _where(row)) for row in rows]


def get(user: Person, checkpoint_id: int) -> Checkpoint:
    """One checkpoint of a job that this person may see, with the job; raises `NotFound`."""
    found = Checkpoint.objects.select_related("job").filter(pk=checkpoint_id, job__in=visible_jobs(user)).first()
    if found is None:
        raise NotFound(f"There is no checkpoint {checkpoint_id}.")
    return found


def _where(row: Checkpoint) -> str:
    if row.place:
        return SHARED_FOLDER
    return STORE if row.usable else ON_ITS_WAY
