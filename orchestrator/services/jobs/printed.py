"""Curves out of the stored log of a job that has ended, for a person who names what to look for. Pages and REST call
this; while a job runs, its nodes read the lines (`worker_agent/replica/output/printed.py`)."""

from django.db import transaction
from django.db.models import F

from orchestrator import series
from orchestrator.domain.lifecycle import TERMINAL_JOB
from orchestrator.domain.loss import loss_name
from orchestrator.domain.sketch import extended
from orchestrator.live import jsonable
from orchestrator.models import Job, LogChunk, Replica, User
from orchestrator.services import transitions
from orchestrator.services.errors import Conflict, FieldError, Invalid
from orchestrator.services.gang import figures
from orchestrator.services.jobs import jobs
from worker_agent.protocol.job.gang_shape import has_chief, is_leader
from worker_agent.protocol.job.printed import PrintedNumbers, names_in, problem_of
from worker_agent.protocol.states import JobStatus

READ_CHARS_MAX = 20_000_000
POINTS_MAX = 20_000

Lists = tuple[list[int], list[float], list[float]]


def draw(*, job_id: int, names: str, by: User) -> Job:
    """Add a series for each of `names` ("loss, accuracy") that the job's processes printed before numbers.

    `Conflict` while it has not ended, and where nothing new is found: a series that is there stays as it is. Of a long
    log, the first 20 million characters are read.
    """
    if problem := problem_of(names) or ("" if names_in(names) else "give at least one name, such as loss"):
        raise Invalid([FieldError("names", problem)])
    with transaction.atomic():
        job = jobs.owned(job_id, by)
        if JobStatus(job.status) not in TERMINAL_JOB:
            raise Conflict("The job has not ended: its lines are drawn when it has.")
        left, drawn = READ_CHARS_MAX, set[str]()
        for replica in job.replicas.filter(superseded=False).order_by("attempt", "role", "index"):
            curves, left = _read(replica, names_in(names), left)
            owner = series.Owner(replica_id=replica.pk)
            there = {name for _, name in series.read([owner], names=list(curves))}
            fresh = {name: run for name, run in curves.items() if name not in there}
            series.append(series.Addition(owner, name, run) for name, run in fresh.items())
            drawn |= fresh.keys()
            _tell(job, replica, fresh)
        if not drawn:
            raise Conflict(f"No printed line of this job gives new numbers for {', '.join(names_in(names))}.")
        text = f"{by.get_username()} had {', '.join(sorted(drawn))} drawn from its printed lines."
        transitions.record(kind="printed_drawn", text=text, job=job, actor=by)
        transitions.announce_job(job)
    return job


def _read(replica: Replica, names: list[str], left: int) -> tuple[dict[str, series.Curve], int]:
    """The curves in the log of a process, of whose characters at most `left` are read; how many are left then."""
    numbers, found = PrintedNumbers(names), dict[str, Lists]()
    chunks = LogChunk.objects.filter(replica=replica).order_by("start").values_list("at", "text")
    at = 0.0
    for at, text in chunks.iterator(chunk_size=100):
        _add(found, numbers.feed(text[:left]), at)
        left -= min(left, len(text))
        if not left:
            break
    _add(found, numbers.feed("", final=True), at)
    tidy = {series.tidy_name(name): series.curve_of(*lists) for name, lists in found.items()}
    return {name: series.thin(curve, POINTS_MAX) for name, curve in tidy.items()}, left


def _add(found: dict[str, Lists], points: list[tuple[int, dict[str, float]]], at: float) -> None:
    for step, values in points:
        for name, value in values.items():
            steps, times, numbers = found.setdefault(name, ([], [], []))
            steps.append(step)
            times.append(at)
            numbers.append(value)


def _tell(job: Job, replica: Replica, curves: dict[str, series.Curve]) -> None:
    """The job's own numbers are those of its leader, in its latest attempt."""
    leads = is_leader(replica.role, replica.index, has_chief=has_chief(job.typed_spec))
    if not leads or replica.attempt != job.attempt or not curves:
        return
    last = {name: jsonable(float(run.values[-1])) for name, run in curves.items()}
    step = max(job.step, *(int(run.steps[-1]) for run in curves.values()))
    metrics, sketch = job.metrics | last, job.sketch
    if run := curves.get(loss_name(metrics)):
        sketch = extended([], run.steps.tolist(), run.values.tolist())
    Job.objects.filter(pk=job.pk).update(metrics=metrics, sketch=sketch, step=step, revision=F("revision") + 1)
    job.refresh_from_db()
    figures.copy({job: last})
