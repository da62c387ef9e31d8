"""Reads about the checkpoints of a job. Pages and REST call these."""

from orchestrator.models import Checkpoint, Job
from worker_agent.protocol.checkpoint import Candidate, best_of


def of_job(job: Job) -> list[Checkpoint]:
    """All there are, newest first; which of them `is_best` is known: by validation loss, else by loss."""
    rows = list(job.checkpoints.order_by("-attempt", "-step"))
    best = best_of([Candidate(row.name, row.attempt, row.step, row.metrics) for row in rows])
    for row in rows:
        row.is_best = best is not None and row.name == best.name
    return rows
