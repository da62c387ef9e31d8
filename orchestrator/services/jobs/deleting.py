"""Deleting a job that has ended: its rows, and its files here and on its nodes. Pages and REST call this."""

import shutil
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from django.conf import settings
from django.db import transaction

from orchestrator.domain.lifecycle import TERMINAL_JOB
from orchestrator.models import User
from orchestrator.services import transitions
from orchestrator.services.checkpoints import checkpoint_registry
from orchestrator.services.errors import Conflict
from orchestrator.services.gang import node_folders
from orchestrator.services.jobs import jobs
from worker_agent.protocol.states import JobStatus

NOT_ENDED = "The job has not ended: stop it first."


def delete_job(*, job_id: int, by: User) -> None:
    """Delete a job with its curves, logs, files and stored checkpoints; that it was there stays in the history.

    `Conflict` while it has not ended, while a process of it is not given back, or while another job is to begin with
    one of its checkpoints. What its nodes hold of it goes as soon as their agents are told so. Checkpoints in a folder
    that the nodes share stay there: only nodes reach it.
    """
    with transaction.atomic():
        job = jobs.owned(job_id, by)
        if JobStatus(job.status) not in TERMINAL_JOB:
            raise Conflict(NOT_ENDED)
        if job.replicas.filter(held=True).exists():
            raise Conflict("A process of this job is still being ended: try again in a moment.")
        own = job.checkpoints.values_list("pk", flat=True)
        if waiting := checkpoint_registry.waiting_for_any(own).first():
            raise Conflict(f"j-{waiting.pk} starts from a checkpoint of this job: delete it when that job has ended.")
        folders = [Path(settings.CHECKPOINT_ROOT) / str(job.pk)]
        folders += [Path(settings.ARTIFACT_ROOT) / str(pk) for pk in job.artifacts.values_list("pk", flat=True)]
        text = f"{by.get_username()} deleted j-{job.pk} ({job.name}) of {job.owner.username}."
        node_folders.forget_deleted(job, now=datetime.now(UTC))
        job.delete()
        transitions.record(kind="job_deleted", text=text, actor=by)
        transaction.on_commit(lambda: _remove(folders))


def _remove(folders: Iterable[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
