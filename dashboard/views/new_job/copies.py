"""The new-job form filled from a job: what is copied, where it goes on, and the words that say so. For `new_job.py`."""

from collections.abc import Mapping
from dataclasses import dataclass

from dashboard.forms import JobForm, cloned_form
from orchestrator.domain.words import counted
from orchestrator.queries import checkpoints as checkpoint_queries
from orchestrator.queries import jobs as job_queries
from orchestrator.queries.errors import NotFound
from orchestrator.queries.rows import Checkpoint, Job, User
from orchestrator.services.jobs import jobs
from worker_agent.protocol.job.requirements import package_of
from worker_agent.protocol.states import Kind

COPIED = "Its program and all its settings are filled in. Curves, logs, files and checkpoints stay with it."


@dataclass(frozen=True)
class Copy:
    """The form, and of which job it is a copy; `says` is what was copied, or filled in beyond that."""

    form: JobForm
    job: Job
    says: str


def copy_of(user: User, wanted: str, changes: Mapping[str, str]) -> Copy:
    """The form that would make the job `wanted` again, with `changes`: from its checkpoint `resume_from`, with the
    package of the module `missing`, with the pattern `printed`. Raises `NotFound`."""
    if not (wanted.isascii() and wanted.isdecimal()):
        raise NotFound("There is no such job to clone.")
    job = job_queries.get(user, int(wanted))
    form = cloned_form(jobs.request_of(job))
    says = [COPIED]
    for name in ("resume_from", "printed"):
        form.values[name] = changes.get(name, form.values[name])
    if resume_from := changes.get("resume_from"):
        kept = next((row for row in checkpoint_queries.of_job(job) if str(row.pk) == resume_from), None)
        says += [_go_on(form, job, kept)] if kept else []
    missing = changes.get("missing", "")
    if job.typed_spec.kind is Kind.SCRIPT and missing in _missed_by(job):
        says.append(_add_package(form, missing))
    return Copy(form, job, " ".join(says))


def _go_on(form: JobForm, job: Job, kept: Checkpoint) -> str:
    """Begin with the checkpoint, and with as many epochs again where it has them all."""
    begins = f"It begins with the checkpoint of step {kept.step}."
    asked = job.typed_spec.epochs
    if kept.epoch < asked:
        return begins
    form.values["epochs"] = str(kept.epoch + asked)
    return (
        f"{begins} That has all {counted(kept.epoch, 'epoch')}, so Epochs is {kept.epoch + asked} here: {asked} more."
    )


def _missed_by(job: Job) -> set[str]:
    """The modules that its processes did not find: an address alone adds no package."""
    return {ending.missing for each in job_queries.replicas(job) if (ending := each.typed_ending) and ending.missing}


def _add_package(form: JobForm, missing: str) -> str:
    package, lines = package_of(missing), form.values["requirements"].splitlines()
    if package.name not in lines:
        form.values["requirements"] = "\n".join([*lines, package.name])
    if package.known:
        return f"{package.name} was added to Packages."
    return (
        f"{package.name} was added to Packages. That is a guess: packages are often, but not always, called like their "
        "modules. Make sure that it is the one you mean before you start."
    )
