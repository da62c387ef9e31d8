"""What people do with jobs: submit, stop, retry, and read back a request to clone. Views and REST call these."""

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec
from django.db import transaction

from orchestrator import enqueue, live
from orchestrator.domain.gang.decisions import End
from orchestrator.domain.job.validation import KNOWN_FIELDS
from orchestrator.domain.lifecycle import TERMINAL_JOB
from orchestrator.models import Cluster, Code, Job, Preflight, User
from orchestrator.queries.errors import NotFound
from orchestrator.queries.jobs import get
from orchestrator.services import transitions
from orchestrator.services.checkpoints import checkpoint_registry
from orchestrator.services.errors import Conflict, Forbidden, Invalid
from orchestrator.services.gang import gang, pausing
from orchestrator.services.jobs import submission
from orchestrator.services.jobs.submission import Checked
from orchestrator.services.programs import programs
from orchestrator.services.programs.programs import Program
from orchestrator.services.transitions import announce_job, move_job
from orchestrator.services.trials import preflights, rehearsals
from worker_agent.protocol.codec import plain
from worker_agent.protocol.findings import Finding
from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.protocol.states import Cause, JobStatus, Kind


def submit_job(*, request: Mapping[str, object] | Checked, by: User) -> Job:
    """Create the job that a request describes, checked already or not, and have it placed at once; `Invalid` names
    every wrong field."""
    spec, program, cluster, findings = _accepted(request, by)
    warnings = [f"{finding.what}: {finding.why}" for finding in findings]
    warnings += preflights.warnings_about(spec, by=by, now=datetime.now(UTC))
    with live.gathered(), transaction.atomic():
        job = _create(spec=spec, cluster=cluster, program=programs.save(program), by=by)
        for warning in dict.fromkeys(warnings):
            transitions.record(kind="preflight", text=f"Found before it started: {warning}.", job=job, actor=by)
    return job


def submit_spec(*, spec: JobSpec, cluster: Cluster, program: Code, by: User, how: str) -> Job:
    """Create a job of what was checked before; `how` says in its history what it is for."""
    with transaction.atomic():
        return _create(spec=spec, cluster=cluster, program=program, by=by, how=how)


def preview_job(*, request: Mapping[str, object], by: User) -> Checked:
    """What the request comes to, for who may create it: reading it may fetch its program."""
    _require_role_for_jobs(by)
    return submission.check(request, by=by)


def check_job(*, request: Mapping[str, object] | Checked, by: User, now: datetime) -> Preflight:
    """Have the nodes that the request's job would get now look whether it could run; refuses like `submit_job`."""
    spec, program, cluster, findings = _accepted(request, by)
    programs.keep(program)
    return preflights.begin(spec=spec, cluster=cluster, findings=findings, by=by, now=now)


def stop_job(*, job_id: int, by: User, now: datetime | None = None) -> Job:
    """Stop a job in whatever state it is. A job that is stopping already stays so; one that has ended is a Conflict."""
    now = now or datetime.now(UTC)
    with transaction.atomic():
        job = owned(job_id, by)
        status = JobStatus(job.status)
        if status in TERMINAL_JOB:
            raise Conflict(already_ended(status))
        reason = f"Stopped by {by.get_username()}."
        if status in (JobStatus.SUBMITTED, JobStatus.PAUSED):
            move_job(
                job=job,
                to=JobStatus.STOPPED,
                now=now,
                text=reason,
                actor=by,
                cause=Cause.STOPPED.value,
                reason=reason,
                waiting_for="",
            )
            rehearsals.withdraw(job=job, now=now)
        elif status is not JobStatus.STOPPING:
            gang.end_attempt(job=job, end=End(Cause.STOPPED, reason), now=now, text=reason, actor=by)
            gang.advance(job_id=job.pk, now=now)
            job.refresh_from_db()
    return job


def pause_job(*, job_id: int, by: User, now: datetime | None = None) -> Job:
    """Have a running job save and leave its devices. A job that is pausing already, or paused, stays so."""
    now = now or datetime.now(UTC)
    with transaction.atomic():
        job = owned(job_id, by)
        status = JobStatus(job.status)
        if status is JobStatus.RUNNING:
            pausing.begin(job=job, reason=f"Paused by {by.get_username()}.", now=now, actor=by)
        elif status is JobStatus.PAUSING and job.requeue:
            pausing.stay(job=job, by=by)
        elif status not in (JobStatus.PAUSING, JobStatus.PAUSED):
            raise Conflict(_not_to_pause(status))
    return job


def resume_job(*, job_id: int, by: User, now: datetime | None = None) -> Job:
    """Put a paused job back into the queue. One that was resumed already stays as it is."""
    now = now or datetime.now(UTC)
    with transaction.atomic():
        job = owned(job_id, by)
        status = JobStatus(job.status)
        if status is JobStatus.PAUSED:
            pausing.resubmit(job=job, text=f"Resumed by {by.get_username()}.", now=now, actor=by)
        elif status is JobStatus.PAUSING:
            raise Conflict("The job is still being paused: resume it when it is paused.")
        elif status in TERMINAL_JOB:
            raise Conflict(f"The job has ended: it {_ended_word(status)}. Resume from one of its checkpoints instead.")
    return job


def retry_job(*, job_id: int, by: User) -> Job:
    """A new job with the spec of one that has ended."""
    _require_role_for_jobs(by)
    job = get(by, job_id)
    if JobStatus(job.status) not in TERMINAL_JOB:
        raise Conflict("The job has not ended yet: stop it first, or clone it.")
    with transaction.atomic():
        return _create(spec=job.typed_spec, cluster=job.cluster, program=job.code, by=by, retry_of=job)


def start_from_checkpoint(*, job_id: int, checkpoint_id: int, by: User) -> Job:
    """A new job that asks for the same as this one, and begins with one of its checkpoints."""
    _require_role_for_jobs(by)
    job = get(by, job_id)
    row = job.checkpoints.filter(pk=checkpoint_id).first()
    if row is None:
        raise NotFound("This job has no such checkpoint.")
    spec = msgspec.structs.replace(job.typed_spec, resume_from=row.pk)
    if errors := checkpoint_registry.resume_point(spec, by=by).errors:
        _field, problem = errors[0]
        raise Conflict(f"{problem[:1].upper()}{problem[1:]}.")
    with transaction.atomic():
        return _create(
            spec=spec, cluster=job.cluster, program=job.code, by=by, retry_of=job, how=f"from the checkpoint at {row}"
        )


def request_of(job: Job) -> dict[str, object]:
    """The request that would create this job again, for a form to start from and for REST."""
    request: dict[str, object] = {
        name: value for name, value in job.spec.items() if name in KNOWN_FIELDS and name != "code"
    }
    if job.recipe:
        request["recipe"] = job.recipe
    elif job.code.archive:
        request["code"] = {"filename": job.code.filename, "sha256": job.code.sha256}
    else:
        request["code"] = {"filename": job.code.filename, "text": bytes(job.code.content).decode("utf-8-sig")}
    return request


def _accepted(
    request: Mapping[str, object] | Checked, by: User
) -> tuple[JobSpec, Program, Cluster, tuple[Finding, ...]]:
    _require_role_for_jobs(by)
    checked = request if isinstance(request, Checked) else submission.check(request, by=by)
    if checked.spec is None or not isinstance(checked.program, Program) or checked.cluster is None:
        raise Invalid(checked.errors)
    return checked.spec, checked.program, checked.cluster, checked.findings


def _create(
    *, spec: JobSpec, cluster: Cluster, program: Code, by: User, retry_of: Job | None = None, how: str = ""
) -> Job:
    job = Job.objects.create(
        owner=by,
        cluster=cluster,
        code=program,
        name=spec.name,
        recipe=spec.code.recipe,
        strategy=spec.strategy.value,
        spec=plain(spec),
        priority=spec.priority,
        epochs=spec.epochs if spec.kind is Kind.RECIPE else 0,
        retry_of=retry_of,
    )
    how = how or (f"as a retry of j-{retry_of.pk}" if retry_of else "")
    text = f"Submitted by {by.get_username()} {how}".rstrip() + "."
    transitions.record(kind="job_submitted", text=text, job=job, actor=by)
    announce_job(job)
    enqueue.ask_to_dispatch()
    return job


def changeable(job_id: int, by: User) -> Job:
    """The job, if this person may change it."""
    job = get(by, job_id)
    require_change(job, by)
    return job


def require_change(job: Job, by: User) -> None:
    """`Forbidden` where this person may not change the job."""
    if not by.may_run_jobs:
        raise Forbidden("Your role lets you look at jobs, not change them.")
    if not job.may_be_changed_by(by):
        raise Forbidden("Only its owner or an administrator may change this job.")


def owned(job_id: int, by: User) -> Job:
    """The job, its row locked, if this person may change it."""
    return Job.objects.select_for_update().get(pk=changeable(job_id, by).pk)


def _require_role_for_jobs(by: User) -> None:
    if not by.may_run_jobs:
        raise Forbidden("Your role lets you look at jobs, not check or create them.")


def _not_to_pause(status: JobStatus) -> str:
    if status in TERMINAL_JOB:
        return already_ended(status)
    if status is JobStatus.STOPPING:
        return "The job is being ended: it can no longer be paused."
    return f"Only a job that runs can be paused, and this one is {status.value}: stop it, or pause it once it runs."


def already_ended(status: JobStatus) -> str:
    """Why nothing can be done to a job that has come to this end."""
    return f"The job has already ended: it {_ended_word(status)}."


def _ended_word(status: JobStatus) -> str:
    return {JobStatus.STOPPED: "was stopped", JobStatus.SUCCEEDED: "succeeded"}.get(status, "failed")
