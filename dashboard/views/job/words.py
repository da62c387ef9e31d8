"""Jobs and replicas as pages say them: one row of a list, what a gang takes, why one ended and what to do about it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from dashboard.templatetags.trainyard import duration, headline
from orchestrator.domain.gang.reasons import sentence_in
from orchestrator.domain.lifecycle import TERMINAL_JOB
from orchestrator.domain.loss import LOSS, loss_name
from orchestrator.domain.sketch import drawn
from orchestrator.queries.jobs import first_at_work, progress_of, remaining_s
from orchestrator.queries.rows import Job, Replica
from worker_agent.protocol.causes import MISSING_MODULE, Blame, row_of
from worker_agent.protocol.job.gang_shape import device_count
from worker_agent.protocol.job.requirements import package_of
from worker_agent.protocol.states import Cause, JobStatus

# Jobs that are not simply on their way or done: their rows say why.
SAYS_WHY = frozenset(JobStatus) - {JobStatus.LAUNCHING, JobStatus.RUNNING, JobStatus.SUCCEEDED}


@dataclass(frozen=True)
class JobRow:
    """A job in a list. `began` is when its first launch was at work, `started` that or when it was submitted."""

    job: Job
    percent: float | None
    remaining_s: float | None
    value: object
    metric: str
    curve: list[float]
    note: str
    devices: int
    began: datetime | None
    started: datetime
    lasted: str

    @classmethod
    def of(cls, job: Job, *, now: datetime | None = None, metric: str = LOSS) -> "JobRow":
        """From a job with owner and cluster at hand; `value` is what it reached of that metric. Which one a job's loss
        is, its names tell."""
        now = now or datetime.now(UTC)
        progress = progress_of(job)
        waiting = job.status == JobStatus.SUBMITTED
        began = first_at_work(job)
        since = job.created_at if waiting else began or job.created_at
        name = loss_name(job.metrics) if metric == LOSS else metric
        note = job.waiting_for if waiting else headline(job.reason) if job.status in SAYS_WHY else ""
        span = duration(((job.ended_at or now) - since).total_seconds())
        return cls(
            job=job,
            percent=None if progress is None else progress * 100,
            remaining_s=remaining_s(job, now=now),
            value=job.metrics.get(name),
            metric=name,
            curve=drawn(job.sketch),
            note=note,
            devices=device_count(job.typed_spec),
            began=began,
            started=since,
            lasted=f"waits {span}" if waiting else span,
        )


def failure_of(job: Job, gang: Sequence[Replica], *, blame: str) -> dict[str, str] | None:
    """Why a failed (or restarting) job ended: what, the rest of it, the last lines of the log, the remedy, and the
    module that was missing.

    `gang` are the processes of its latest attempt, `blame` who is to blame for that one's end.
    """
    if job.status not in (JobStatus.FAILED, JobStatus.RESTARTING) or not (job.reason or job.cause):
        return None
    said, title = sentence_in(job.reason), headline(job.reason)
    if not job.cause:
        return {"title": title, "text": said if said != title else "", "lines": "", "remedy": "", "missing": ""}
    row = row_of(Cause(job.cause), Blame(blame))
    if blame == Blame.PEER or title != said or not title:
        title = row.title
    ends = [
        (ending.lost_peer, each.ended_at, ending.last_lines, ending.remedy, ending.missing)
        for each in gang
        if (ending := each.typed_ending) and each.ended_at and ending.cause == job.cause and not each.superseded
    ]
    *_, lines, remedy, missing = min(ends, default=("", "", ""))
    if missing:
        package = package_of(missing).name if package_of(missing).known else f"the package that has {missing}"
        of_row = MISSING_MODULE[job.typed_spec.kind].format(module=missing, package=package)
    else:
        of_row = row.remedy
    return {
        "title": title,
        "text": said if said != title else "",
        "lines": lines,
        "remedy": f"{remedy[:1].upper()}{remedy[1:]}." if remedy else of_row,
        "missing": missing,
    }


def is_over(job: Job) -> bool:
    """The job will not move any more."""
    return JobStatus(job.status) in TERMINAL_JOB
