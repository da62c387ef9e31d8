"""One action on many jobs: what it would do to each, and doing it, each job in a transaction of its own.

What cannot be done to one job hinders none of the others, and is said with its reason. Views and REST call this.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.domain.lifecycle import TERMINAL_JOB
from orchestrator.models import Job, User
from orchestrator.queries.errors import NotFound
from orchestrator.queries.jobs import many
from orchestrator.services.errors import Conflict, FieldError, Forbidden, Invalid, words_of
from orchestrator.services.jobs import deleting, jobs, labels
from orchestrator.services.transitions import StaleTransition
from worker_agent.protocol.states import JobStatus

MOST_AT_ONCE = 200
GONE = "There is no such job (any more)."


class Action(StrEnum):
    """What may be done to many jobs at once."""

    STOP = "stop"
    TAG = "tag"
    UNTAG = "untag"
    DELETE = "delete"


@dataclass(frozen=True)
class Outcome:
    """What became, or would become, of one job: done, unless `why_not` says why not. `job` None: there is none."""

    job_id: int
    job: Job | None
    why_not: str = ""


def foresee(*, action: Action, job_ids: Sequence[int], by: User) -> list[Outcome]:
    """What `carry_out` would do as the jobs stand now; `Invalid` where they are too many."""
    wanted = _bounded(job_ids)
    found = {job.pk: job for job in many(by, wanted)}
    return [Outcome(pk, job := found.get(pk), _obstacle(action, job, by)) for pk in wanted]


def carry_out(*, action: Action, job_ids: Sequence[int], by: User, tag: str = "") -> list[Outcome]:
    """Do it to each of the jobs; `Invalid` where they are too many, or where `tag` is no tag."""
    if action in (Action.TAG, Action.UNTAG):
        labels.tidy_tag(tag)
    wanted = _bounded(job_ids)
    found = {job.pk: job for job in many(by, wanted)}
    return [Outcome(pk, found.get(pk), _done(action, pk, by, tag)) for pk in wanted]


def _done(action: Action, job_id: int, by: User, tag: str) -> str:
    """Why it could not be done, "" where it was."""
    acts: dict[Action, Callable[[], object]] = {
        Action.STOP: lambda: jobs.stop_job(job_id=job_id, by=by),
        Action.TAG: lambda: labels.add_tag(job_id=job_id, tag=tag, by=by),
        Action.UNTAG: lambda: labels.remove_tag(job_id=job_id, tag=tag, by=by),
        Action.DELETE: lambda: deleting.delete_job(job_id=job_id, by=by),
    }
    try:
        acts[action]()
    except (NotFound, Job.DoesNotExist):
        return GONE
    except StaleTransition:
        return "It has changed meanwhile: try again."
    except (Conflict, Forbidden, Invalid) as refused:
        return words_of(refused)
    return ""


def _obstacle(action: Action, job: Job | None, by: User) -> str:
    if job is None:
        return GONE
    try:
        jobs.require_change(job, by)
    except Forbidden as refused:
        return str(refused)
    status = JobStatus(job.status)
    if action is Action.STOP and status in TERMINAL_JOB:
        return jobs.already_ended(status)
    if action is Action.DELETE and status not in TERMINAL_JOB:
        return deleting.NOT_ENDED
    return ""


def _bounded(job_ids: Sequence[int]) -> list[int]:
    wanted = list(dict.fromkeys(job_ids))
    if len(wanted) > MOST_AT_ONCE:
        message = f"At most {MOST_AT_ONCE} jobs can be chosen at once, and these are {len(wanted)}: do it in parts."
        raise Invalid([FieldError("jobs", message)])
    return wanted
