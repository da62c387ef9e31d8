"""REST of jobs. Each operation is one query or one service; a job made here is the job that the browser makes."""

import json
from dataclasses import asdict
from typing import Any, Literal, NoReturn

from django.http import HttpResponseBase
from ninja import Router, Schema, Status
from ninja.params.functions import Query
from pydantic import Field

from dashboard.api import shapes
from dashboard.api.limits import WRITES
from dashboard.api.problems import PROBLEMS
from dashboard.downloads import attachment, bytes_attachment
from dashboard.requests import SignedIn
from orchestrator.catalogue import entries
from orchestrator.queries import jobs, printed, restarts, rows, sorting, telemetry
from orchestrator.queries.errors import NotFound
from orchestrator.queries.jobs import JobSummary
from orchestrator.services import artifacts as artifact_files
from orchestrator.services.errors import FieldError, Invalid
from orchestrator.services.jobs import bulk, deleting, labels, submission
from orchestrator.services.jobs import jobs as service
from orchestrator.services.jobs import printed as printed_service
from worker_agent.protocol.job import printed as printed_lines
from worker_agent.protocol.states import JobStatus, Strategy

router = Router(tags=["jobs"])

POINTS_LIMIT = 20_000
SORTS = f"^(-?({'|'.join([*sorting.COLUMNS, sorting.METRIC])}))?$"
BINARY = {"type": "string", "format": "binary"}
# Of UTF-8: a smaller piece of a log might hold no whole character.
LONGEST_CHARACTER_BYTES = 4
TOO_DEEP = "The body is nested too deeply: no field of a job has more than four levels. Send `tf_config` as text."
# Taken as it comes: the service reads each field, so that REST and the browser's form get the same sentences.
JOB_REQUEST = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/JobRequest"}}},
    }
}


class Tags(Schema):
    """The tags of a job."""

    tags: list[str] = Field(description=f"At most {labels.TAGS_MOST} words; letters become small, spaces hyphens.")


class Notes(Schema):
    """What people wrote about a job."""

    notes: str = Field(description=f"Plain text, at most {labels.NOTES_CHARS} characters.")


class Bulk(Schema):
    """One action on many jobs."""

    action: bulk.Action
    jobs: list[int] = Field(description=f"Ids, at most {bulk.MOST_AT_ONCE}.")
    tag: str = Field(default="", description="For `tag` and `untag`.")


class Refused(Schema):
    """A job to which it could not be done."""

    job: int
    why: str


class BulkDone(Schema):
    """What was done to which jobs."""

    done: list[int]
    refused: list[Refused]


@router.get("/jobs", response={200: shapes.JobPage, **PROBLEMS}, summary="Jobs, newest first or in another order")
def list_jobs(
    request: SignedIn,
    limit: int = Query(50, ge=1, le=jobs.PAGE_LIMIT),
    cursor: int | None = Query(None, description="`next` of the page before."),
    status: list[JobStatus] = Query([], description="May be given several times."),  # noqa: B008
    strategy: Strategy | Literal[""] = "",
    owner: str = "",
    cluster: str = "",
    search: str = Query("", description="Part of a name, a tag, or an id."),
    tag: str = "",
    sort: str = Query("", pattern=SORTS, description="A column, `-` in front: descending. Empty: the newest first."),
    metric: str = Query("", description="For `sort=metric`: its name. Jobs without it come last."),
) -> dict[str, Any]:
    """Newest first, pages go by id: what is added meanwhile never shifts a page. In another order they go by number, up
    to 10,000 jobs."""
    if sort.endswith(sorting.METRIC) and not metric:
        raise Invalid([FieldError("metric", "Name the metric to sort by.")])
    found = jobs.page(
        request.user,
        status=status,
        strategy=strategy,
        owner=owner,
        cluster=cluster,
        search=search,
        tag=tag,
        order=sorting.Order.read(sort, metric=metric),
        cursor=cursor,
        limit=limit,
    )
    return {"items": [jobs.summary(job) for job in found.items], "next": found.next}


@router.post(
    "/jobs",
    response={201: shapes.Job, **PROBLEMS},
    summary="Make a job",
    openapi_extra=JOB_REQUEST,
    throttle=WRITES,
)
def create_job(request: SignedIn) -> Status[JobSummary]:
    """Checked as a whole: 422 names everything that is wrong, field by field."""
    job = service.submit_job(request=body_of(request), by=request.user)
    return Status(201, _told(request, job.pk))


@router.post(
    "/jobs/preview",
    response={200: shapes.Preview, **PROBLEMS},
    summary="Preview a job",
    openapi_extra=JOB_REQUEST,
)
def preview_job(request: SignedIn) -> submission.Checked:
    """Batch arithmetic, placement and TF_CONFIG of a request, also of an unfinished one. Makes nothing."""
    return service.preview_job(request=body_of(request), by=request.user)


@router.get("/jobs/{int:job_id}", response={200: shapes.Job, **PROBLEMS}, summary="One job")
def get_job(request: SignedIn, job_id: int) -> JobSummary:
    """The job and where it stands."""
    return _told(request, job_id)


@router.post("/jobs/{int:job_id}/stop", response={200: shapes.Job, **PROBLEMS}, summary="Stop a job", throttle=WRITES)
def stop_job(request: SignedIn, job_id: int) -> JobSummary:
    """In any state; the answer shows it stopping, or stopped if nothing ran."""
    service.stop_job(job_id=job_id, by=request.user)
    return _told(request, job_id)


@router.post("/jobs/{int:job_id}/pause", response={200: shapes.Job, **PROBLEMS}, summary="Pause a job", throttle=WRITES)
def pause_job(request: SignedIn, job_id: int) -> JobSummary:
    """Of one that runs: it saves a checkpoint, leaves, and its devices become free. What cannot save is only ended."""
    service.pause_job(job_id=job_id, by=request.user)
    return _told(request, job_id)


@router.post(
    "/jobs/{int:job_id}/resume", response={200: shapes.Job, **PROBLEMS}, summary="Resume a job", throttle=WRITES
)
def resume_job(request: SignedIn, job_id: int) -> JobSummary:
    """Of one that is paused: back into the queue, to go on from its newest checkpoint."""
    service.resume_job(job_id=job_id, by=request.user)
    return _told(request, job_id)


@router.post(
    "/jobs/{int:job_id}/retry", response={201: shapes.Job, **PROBLEMS}, summary="Run a job again", throttle=WRITES
)
def retry_job(request: SignedIn, job_id: int) -> Status[JobSummary]:
    """A new job that asks for the same."""
    job = service.retry_job(job_id=job_id, by=request.user)
    return Status(201, _told(request, job.pk))


@router.delete("/jobs/{int:job_id}", response={204: None, **PROBLEMS}, summary="Delete a job", throttle=WRITES)
def delete_job(request: SignedIn, job_id: int) -> Status[None]:
    """Of one that has ended, with its curves, logs, files and the checkpoints in Trainyard's store."""
    deleting.delete_job(job_id=job_id, by=request.user)
    return Status(204, None)


@router.post("/jobs/bulk", response={200: BulkDone, **PROBLEMS}, summary="Do one thing to many jobs", throttle=WRITES)
def change_many(request: SignedIn, body: Bulk) -> dict[str, Any]:
    """Each job for itself: what cannot be done to one hinders none of the others."""
    outcomes = bulk.carry_out(action=body.action, job_ids=body.jobs, by=request.user, tag=body.tag)
    return {
        "done": [each.job_id for each in outcomes if not each.why_not],
        "refused": [{"job": each.job_id, "why": each.why_not} for each in outcomes if each.why_not],
    }


@router.put("/jobs/{int:job_id}/tags", response={200: shapes.Job, **PROBLEMS}, summary="Set its tags", throttle=WRITES)
def set_tags(request: SignedIn, job_id: int, body: Tags) -> JobSummary:
    """These, and no others."""
    labels.set_tags(job_id=job_id, tags=body.tags, by=request.user)
    return _told(request, job_id)


@router.get("/jobs/{int:job_id}/notes", response={200: Notes, **PROBLEMS}, summary="Its notes")
def get_notes(request: SignedIn, job_id: int) -> rows.Job:
    """What people wrote about it."""
    return jobs.get(request.user, job_id)


@router.put("/jobs/{int:job_id}/notes", response={200: Notes, **PROBLEMS}, summary="Write its notes", throttle=WRITES)
def set_notes(request: SignedIn, job_id: int, body: Notes) -> rows.Job:
    """In place of those that it has."""
    return labels.set_notes(job_id=job_id, notes=body.notes, by=request.user)


@router.get("/jobs/{int:job_id}/replicas", response={200: list[shapes.Replica], **PROBLEMS}, summary="Its processes")
def list_replicas(
    request: SignedIn, job_id: int, attempt: int | None = Query(None, description="The latest if not given.")
) -> list[rows.Replica]:
    """The processes of one attempt; none while the job has not been placed."""
    job = jobs.get(request.user, job_id)
    return jobs.replicas(job, _attempt_of(job, attempt))


@router.get(
    "/jobs/{int:job_id}/series", response={200: dict[str, list[shapes.Series]], **PROBLEMS}, summary="Its metrics"
)
def get_series(
    request: SignedIn,
    job_id: int,
    names: str = Query("", description="Names, comma-separated. Empty: all."),
    points: int = Query(1000, ge=2, le=POINTS_LIMIT, description="Thin each series to about as many points."),
    attempt: int | None = Query(None, description="All if not given."),
) -> dict[str, list[telemetry.SeriesView]]:
    """By name, a list with one entry for each replica and attempt."""
    job = jobs.get(request.user, job_id)
    wanted = [name for name in names.split(",") if name] or None
    return telemetry.series(job, names=wanted, points=points, attempt=_attempt_of(job, attempt))


@router.get(
    "/jobs/{int:job_id}/printed", response={200: list[shapes.Printed], **PROBLEMS}, summary="Numbers it only printed"
)
def list_printed(request: SignedIn, job_id: int) -> list[printed_lines.Found]:
    """What could be drawn from its printed lines: of a script that told no numbers otherwise."""
    return printed.offered(jobs.get(request.user, job_id))


@router.post(
    "/jobs/{int:job_id}/printed",
    response={200: shapes.Job, **PROBLEMS},
    summary="Draw its printed lines",
    throttle=WRITES,
)
def draw_printed(request: SignedIn, job_id: int, body: shapes.DrawPrinted) -> JobSummary:
    """Of one that has ended: each name becomes a series, from the stored log."""
    printed_service.draw(job_id=job_id, names=body.names, by=request.user)
    return _told(request, job_id)


@router.get("/jobs/{int:job_id}/logs", response={200: shapes.Log, **PROBLEMS}, summary="A process's output")
def get_log(
    request: SignedIn,
    job_id: int,
    replica: str = Query(..., description="Such as worker:0; worker:0.0 is the first one, where it was replaced."),
    offset: int = Query(0, ge=0, description="In bytes: `next` of the piece before."),
    limit: int = Query(
        100_000,
        ge=LONGEST_CHARACTER_BYTES,
        le=telemetry.LOG_LIMIT_BYTES,
        description="In bytes; whole characters only.",
    ),
    attempt: int | None = Query(None, description="The latest if not given."),
) -> telemetry.LogSlice:
    """A piece of it; ask again from `next` for what follows."""
    job = jobs.get(request.user, job_id)
    return telemetry.log(job, replica=replica, offset=offset, limit=limit, attempt=attempt)


@router.get("/jobs/{int:job_id}/restarts", response={200: list[shapes.Restart], **PROBLEMS}, summary="Its restarts")
def list_restarts(request: SignedIn, job_id: int) -> list[restarts.Restart]:
    """The first one first: why, where, and how many steps and seconds each cost."""
    return restarts.of_job(jobs.get(request.user, job_id))


@router.get("/jobs/{int:job_id}/events", response={200: list[shapes.Event], **PROBLEMS}, summary="Its history")
def list_events(
    request: SignedIn,
    job_id: int,
    after: int = Query(0, ge=0, description="Id of the last event already known."),
    limit: int = Query(500, ge=1, le=jobs.EVENTS_LIMIT),
) -> list[rows.Event]:
    """Oldest first."""
    return jobs.events(jobs.get(request.user, job_id), after=after, limit=limit)


@router.get("/jobs/{int:job_id}/artifacts", response={200: list[shapes.Artifact], **PROBLEMS}, summary="Its files")
def list_artifacts(request: SignedIn, job_id: int) -> list[rows.Artifact]:
    """Newest first."""
    return jobs.artifacts(jobs.get(request.user, job_id))


@router.get(
    "/jobs/{int:job_id}/artifacts.zip",
    response={200: bytes, **PROBLEMS},
    summary="Files as a zip file",
    openapi_extra={"responses": {200: {"content": {"application/zip": {"schema": BINARY}}}}},
)
def download_artifacts(
    request: SignedIn,
    job_id: int,
    attempt: int | None = Query(None, description="The latest if not given."),
    folder: str = Query("", description="Only the files below it. Empty: all."),
) -> HttpResponseBase:
    """Those of one attempt. If several processes left files, each has its own folder in it."""
    number = jobs.get(request.user, job_id).attempt if attempt is None else attempt
    pieces = artifact_files.archive(user=request.user, job_id=job_id, attempt=number, folder=folder.strip("/"))
    return bytes_attachment(request, pieces, name=f"j-{job_id}-{number}.zip", kind="application/zip")


@router.get(
    "/jobs/{int:job_id}/artifacts/{int:artifact_id}",
    response={200: bytes, **PROBLEMS},
    summary="Download a file",
    openapi_extra={"responses": {200: {"content": {"application/octet-stream": {"schema": BINARY}}}}},
)
def download_artifact(request: SignedIn, job_id: int, artifact_id: int) -> HttpResponseBase:
    """As an attachment."""
    artifact, file = artifact_files.open_file(user=request.user, job_id=job_id, artifact_id=artifact_id)
    return attachment(request, file, name=artifact_files.download_name(artifact), size_bytes=artifact.size_bytes)


@router.get("/recipes", response={200: list[shapes.Recipe], **PROBLEMS}, summary="The catalogue", tags=["recipes"])
def list_recipes(request: SignedIn) -> list[dict[str, Any]]:
    """Programs that ship with Trainyard and the hyper-parameters that each declares."""
    return [{"name": entry.name, **asdict(entry.info)} for entry in entries()]


def body_of(request: SignedIn) -> dict[str, object]:
    """The JSON object that describes a job, or `Invalid`."""
    try:
        body = json.loads(request.body, parse_constant=_no_such_number)
    except RecursionError as error:
        raise Invalid([FieldError("", TOO_DEEP)]) from error
    except ValueError as error:
        raise Invalid([FieldError("", f"The body is not JSON: {error}")]) from error
    if not isinstance(body, dict):
        raise Invalid([FieldError("", "a job is described by an object of fields")])
    return body


def _no_such_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number")


def _attempt_of(job: rows.Job, attempt: int | None) -> int | None:
    """The attempt that was asked for; raises `NotFound` where the job has none of that number."""
    if attempt is not None and attempt not in {each.number for each in jobs.attempts(job)}:
        raise NotFound(f"This job has no attempt {attempt}.")
    return attempt


def _told(request: SignedIn, job_id: int) -> JobSummary:
    return jobs.summary(jobs.get(request.user, job_id))
