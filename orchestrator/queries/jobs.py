"""Reads about jobs: lists, one job, its attempts, replicas, history and files. Pages, REST and sockets call these.

Everybody who is signed in sees every job and machine of the installation: `shown_to` is the one place that says so. Who
may change a job, `Job.may_be_changed_by` says.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

from django.contrib.auth.models import AnonymousUser
from django.db.models import Count, Exists, Model, OuterRef, Prefetch, Q, QuerySet

from orchestrator.domain.lifecycle import LIVE_JOB, TERMINAL_JOB
from orchestrator.domain.loss import loss_name
from orchestrator.domain.words import storable
from orchestrator.models import Artifact, Attempt, Code, Event, Job, JobTag, Replica, User
from orchestrator.queries import sorting
from orchestrator.queries.errors import NotFound
from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.protocol.states import JobStatus

PAGE_LIMIT = 200
EVENTS_LIMIT = 2000
ID_MAX = 2**63 - 1
_ID_SEARCH = re.compile(r"(?:j-|#)?(\d{1,18})", re.IGNORECASE)
_REPLICA_NAME = re.compile(r"(?P<role>\w+):(?P<index>\d{1,8})(?:\.(?P<incarnation>\d{1,8}))?", re.ASCII)

_LISTED = tuple(field.name for field in Job._meta.concrete_fields if field.name != "notes")

M = TypeVar("M", bound=Model)
Person = User | AnonymousUser


class Page(NamedTuple):
    """One page of jobs; `next` is the cursor of the page behind it, None on the last.

    Newest first, a cursor is an id, and `newer` what to give as `after` for the page before it, None on the first. In
    another order, both are cursors, which count the jobs before a page.
    """

    items: list[Job]
    next: int | None
    newer: int | None = None


class Began(NamedTuple):
    """When all processes of a job's latest launch were at work, and from which step; None: not yet, from the start."""

    at: datetime | None = None
    step: int | None = None


def shown_to(user: Person, rows: QuerySet[M]) -> QuerySet[M]:
    """The rows for who is signed in, none for anybody else."""
    return rows if _is_known(user) else rows.none()


def _is_known(user: Person) -> bool:
    return user.is_authenticated and user.is_active


def visible_jobs(user: Person) -> QuerySet[Job]:
    """The jobs that this person may look at, with owner and cluster at hand."""
    return shown_to(user, Job.objects.select_related("owner", "cluster"))


def _listed(user: Person) -> QuerySet[Job]:
    """The same for a list: of owner and cluster their names alone, and of all launches when they were at work."""
    launches = Attempt.objects.only("job", "number", "running_at", "resumed_step")
    return (
        visible_jobs(user)
        .only(*_LISTED, "owner__username", "cluster__name")
        .prefetch_related(Prefetch("attempts", launches))
    )


def page(
    user: Person,
    *,
    status: Iterable[str] = (),
    strategy: str = "",
    owner: str = "",
    cluster: str = "",
    search: str = "",
    tag: str = "",
    order: sorting.Order | None = None,
    cursor: int | None = None,
    after: int | None = None,
    limit: int = 50,
) -> Page:
    """Jobs with id below `cursor` (or the nearest above `after`), newest first, or those behind the first `cursor` ones
    in another `order`. Empty filters do not filter; `search` is part of a name, a tag, or an id."""
    jobs = _listed(user)
    if "\0" in f"{strategy}{owner}{cluster}{tag}":
        return Page([], None)  # nothing is called so, and PostgreSQL will not even look
    wanted = {"status__in": list(status), "strategy": strategy, "owner__username": owner, "cluster__name": cluster}
    wanted["tag_rows__word"] = tag
    jobs = jobs.filter(**{column: value for column, value in wanted.items() if value})
    if search := storable(search).strip():
        by_id = _ID_SEARCH.fullmatch(search)
        tagged = Q(pk__in=JobTag.objects.filter(word=search.lower()).values("job"))
        jobs = jobs.filter(Q(name__icontains=search) | tagged | (Q(pk=int(by_id[1])) if by_id else Q()))
    size = min(max(limit, 1), PAGE_LIMIT)
    if order is not None:
        return _ordered(jobs, order, skip=min(cursor or 0, sorting.DEEPEST), size=size)
    if after is not None:
        found = list(jobs.filter(pk__gt=after).order_by("pk")[: size + 1])
        items = found[size - 1 :: -1] if len(found) > size else found[::-1]
        if items:
            older = jobs.filter(pk__lt=items[-1].pk).exists()
            return Page(items, items[-1].pk if older else None, items[0].pk if len(found) > size else None)
    before = jobs if cursor is None else jobs.filter(pk__lt=cursor)
    found = list(before.order_by("-pk")[: size + 1])
    items = found[:size]
    newer = items[0].pk if cursor is not None and items and jobs.filter(pk__gt=items[0].pk).exists() else None
    return Page(items, items[-1].pk if len(found) > size else None, newer)


def _ordered(jobs: QuerySet[Job], order: sorting.Order, *, skip: int, size: int) -> Page:
    found = sorting.ids(jobs, order, skip=skip, limit=size + 1)
    rows = jobs.in_bulk(found[:size])
    goes_on = len(found) > size and skip + size <= sorting.DEEPEST
    return Page(
        [rows[pk] for pk in found[:size] if pk in rows],
        skip + size if goes_on else None,
        max(skip - size, 0) if skip else None,
    )


def many(user: Person, job_ids: Iterable[int]) -> list[Job]:
    """Those of the jobs that there are, in this order, each once, with what their programs are called."""
    wanted = [pk for pk in dict.fromkeys(job_ids) if 0 < pk <= ID_MAX]
    programs = Prefetch("code", Code.objects.only("filename", "archive"))
    found = _listed(user).prefetch_related(programs).in_bulk(wanted)
    return [found[pk] for pk in wanted if pk in found]


def metric_names(user: Person) -> list[str]:
    """The names of the metrics that jobs have, for the choice of a column."""
    return sorting.metric_names() if _is_known(user) else []


def recent(user: Person, *, limit: int = 8, live: bool | None = None) -> list[Job]:
    """The newest jobs; `live` True keeps those not yet ended, False those that have."""
    jobs = _listed(user)
    if live is not None:
        ongoing = [status.value for status in LIVE_JOB]
        jobs = jobs.filter(status__in=ongoing) if live else jobs.exclude(status__in=ongoing)
    return list(jobs.order_by("-pk")[:limit])


def counts(user: Person, *, live: bool = False) -> dict[str, int]:
    """How many jobs, of all or of those that have not ended (`live`), stand at each status; every status is there."""
    jobs = visible_jobs(user)
    # Most jobs succeeded: they are what is left of all, which a database counts faster than those of one status.
    asked = LIVE_JOB if live else frozenset(JobStatus) - {JobStatus.SUCCEEDED}
    of_status = jobs.filter(status__in=asked).order_by().values_list("status").annotate(number=Count("pk"))
    found = {status.value: 0 for status in JobStatus} | dict(of_status)
    if not live:
        found[JobStatus.SUCCEEDED.value] = max(jobs.count() - sum(found.values()), 0)
    return found


def ended_since(user: Person, moment: datetime) -> dict[str, int]:
    """How many jobs have `ended` since `moment`, and how many of them `failed`."""
    failed = Count("pk", filter=Q(status=JobStatus.FAILED.value))
    over = visible_jobs(user).filter(status__in=TERMINAL_JOB, ended_at__gte=moment)
    return over.aggregate(ended=Count("pk"), failed=failed)


def failed_since(user: Person, moment: datetime, *, limit: int) -> list[Job]:
    """The jobs that failed at or after `moment`, the last one first."""
    failed = visible_jobs(user).filter(ended_at__gte=moment, status=JobStatus.FAILED.value)
    return list(failed.order_by("-ended_at", "-pk")[:limit])


def latest_events(user: Person, *, limit: int = 8) -> list[Event]:
    """What happened last to jobs and nodes, newest first; the life of single replicas is left to the job's page."""
    told = Event.objects.filter(Q(kind__startswith="job_") | Q(kind__startswith="node_"))
    return list(shown_to(user, told).select_related("job", "node").order_by("-pk")[:limit])


def owners(user: Person) -> list[str]:
    """The names of people who own a job, for the filter of the list."""
    own = Exists(visible_jobs(user).filter(owner=OuterRef("pk")))
    return list(User.objects.filter(own).order_by("username").values_list("username", flat=True))


def get(user: Person, job_id: int) -> Job:
    """One job; raises `NotFound`."""
    try:
        return visible_jobs(user).get(pk=job_id)
    except (Job.DoesNotExist, OverflowError) as error:
        raise NotFound(f"There is no job {job_id}.") from error


def replicas(job: Job, attempt: int | None = None) -> list[Replica]:
    """The replicas of an attempt, of the latest when None, with their nodes; those that were replaced before the ones
    that took their place."""
    number = job.attempt if attempt is None else attempt
    rows = job.replicas.filter(attempt=number).select_related("node")
    return list(rows.order_by("role", "index", "incarnation"))


def replica_named(job: Job, name: str, attempt: int | None = None) -> Replica:
    """The replica called `worker:0` of an attempt, of the latest when None; raises `NotFound`.

    Of those that took each other's place it is the last; `worker:0.0` is the first of them, `worker:0.1` the next.
    """
    number = job.attempt if attempt is None else attempt
    if found := _REPLICA_NAME.fullmatch(name):
        rows = job.replicas.filter(attempt=number, role=found["role"], index=int(found["index"]))
        if found["incarnation"]:
            rows = rows.filter(incarnation=int(found["incarnation"]))
        if replica := rows.order_by("incarnation").last():
            return replica
    raise NotFound(f"Attempt {number} of this job has no replica {name}.")


def attempts(job: Job) -> list[Attempt]:
    """Every attempt, first one first."""
    return list(job.attempts.order_by("number"))


def events(job: Job, *, after: int = 0, limit: int = 500) -> list[Event]:
    """The history of a job behind event id `after`, oldest first."""
    found = job.events.filter(pk__gt=after).select_related("actor", "node").order_by("pk")
    return list(found[: min(max(limit, 1), EVENTS_LIMIT)])


def artifacts(job: Job) -> list[Artifact]:
    """The files that a job left, newest first."""
    return list(job.artifacts.select_related("replica").order_by("-pk"))


@dataclass(frozen=True)
class JobSummary:
    """A job as REST, sockets and live events tell it: `plain` makes JSON of it. `metrics` are JSON-safe as stored."""

    id: int
    name: str
    cluster: str
    recipe: str
    status: str
    cause: str
    reason: str
    waiting_for: str
    strategy: str
    attempt: int
    progress: float | None
    step: int
    total_steps: int
    epoch: int
    epochs: int
    metrics: dict[str, Any]
    loss_name: str
    tags: list[str]
    owner: str
    priority: int
    retry_of: int | None
    revision: int
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    remaining_s: float | None
    spec: JobSpec


OWN_NAME = frozenset({"cluster", "loss_name", "owner", "progress", "remaining_s", "retry_of", "spec"})
COLUMNS = tuple(field.name for field in fields(JobSummary) if field.name not in OWN_NAME)


def summary(job: Job, *, now: datetime | None = None) -> JobSummary:
    """The job as it stands, with the owner's and the cluster's name."""
    return JobSummary(
        cluster=job.cluster.name,
        loss_name=loss_name(job.metrics),
        owner=job.owner.username,
        progress=progress_of(job),
        remaining_s=remaining_s(job, now=now or datetime.now(UTC)),
        retry_of=job.retry_of_id,
        spec=job.typed_spec,
        **{name: getattr(job, name) for name in COLUMNS},
    )


def advance(job: Job, began: Began, *, measured: bool, now: datetime) -> dict[str, Any]:
    """The fields of its summary that change as it trains; `metrics`, JSON-safe as stored, and which of them is the loss
    only where new ones were `measured`."""
    return {
        "id": job.pk,
        "revision": job.revision,
        "step": job.step,
        "total_steps": job.total_steps,
        "epoch": job.epoch,
        "epochs": job.epochs,
        "progress": progress_of(job),
        "remaining_s": _remaining_s(job, began, now),
    } | ({"metrics": job.metrics, "loss_name": loss_name(job.metrics)} if measured else {})


def first_at_work(job: Job) -> datetime | None:
    """When its processes were at work for the first time, in whatever attempt; `started_at` is of the latest one."""
    return next((attempt.running_at for attempt in job.attempts.all() if attempt.running_at), job.started_at)


def progress_of(job: Job) -> float | None:
    """How much of the training is done, 0 to 1; None while its length is unknown."""
    if job.status == JobStatus.SUCCEEDED:
        return 1.0
    if not job.total_steps:
        return None
    return min(job.step / job.total_steps, 1.0)


def remaining_s(job: Job, *, now: datetime) -> float | None:
    """How long it will go on at the pace of its latest launch; None where that is not known."""
    if job.status != JobStatus.RUNNING:
        return None
    latest = next((attempt for attempt in job.attempts.all() if attempt.number == job.attempt), None)
    return _remaining_s(job, Began(latest.running_at, latest.resumed_step) if latest else Began(), now)


def _remaining_s(job: Job, began: Began, now: datetime) -> float | None:
    made = job.step - (began.step or 0)
    if job.status != JobStatus.RUNNING or not job.total_steps or job.started_at is None or made <= 0:
        return None
    elapsed_s = (now - (began.at or job.started_at)).total_seconds()
    return round(max(elapsed_s, 0.0) * max(job.total_steps - job.step, 0) / made, 1)
