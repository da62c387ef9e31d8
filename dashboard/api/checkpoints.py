"""Checkpoints: for people, REST below their job; for agents, signed routes to hand them in and to fetch them."""

from datetime import datetime
from typing import Any, Literal

from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.urls import reverse
from ninja import Field, Router, Schema, Status

from dashboard.api import shapes
from dashboard.api.agents import agents_only, attempt_of, node_of, pieces_of
from dashboard.api.limits import WRITES
from dashboard.api.problems import PROBLEMS
from dashboard.downloads import attachment, bytes_attachment
from dashboard.requests import SignedIn
from orchestrator.queries import checkpoints, jobs, rows
from orchestrator.services.checkpoints import checkpoint_store as store
from orchestrator.services.jobs import jobs as service

router = Router(tags=["jobs"])

BINARY = {"responses": {200: {"content": {"application/x-tar": {"schema": {"type": "string", "format": "binary"}}}}}}


class Checkpoint(Schema):
    """A complete checkpoint of a job. Give its `id` as `resume_from` of a new job to go on from it."""

    id: int
    attempt: int
    name: str
    step: int
    epoch: int
    metrics: dict[str, Any]
    size_bytes: int
    sha256: str = Field(description="Of its marker, which names every file with its own SHA-256.")
    best: bool = Field(
        validation_alias="is_best", description="The lowest validation loss, or the lowest loss if there is none."
    )
    where: Literal["store", "folder", "node"] = Field(
        description="In Trainyard's store, in the folder that the nodes share, or still on its node."
    )
    usable: bool = Field(description="Whether a job may start from it now.")
    place: str = Field(description="The folder, where the nodes share one.")
    created_at: datetime
    url: str | None = Field(description="Where it can be downloaded as a tar file, if it is in the store.")

    @staticmethod
    def resolve_url(row: rows.Checkpoint) -> str | None:
        """Its address here."""
        return reverse("api-1:download_checkpoint", args=[row.job_id, row.pk]) if row.where == "store" else None


@router.get("/jobs/{int:job_id}/checkpoints", response={200: list[Checkpoint], **PROBLEMS}, summary="Its checkpoints")
def list_checkpoints(request: SignedIn, job_id: int) -> list[rows.Checkpoint]:
    """Newest first. Kept are as many as the job asked for, and the best."""
    return checkpoints.of_job(jobs.get(request.user, job_id))


@router.get(
    "/jobs/{int:job_id}/checkpoints/{int:checkpoint_id}",
    response={200: bytes, **PROBLEMS},
    summary="Download a checkpoint",
    openapi_extra=BINARY,
)
def download_checkpoint(request: SignedIn, job_id: int, checkpoint_id: int) -> HttpResponseBase:
    """As a tar file of its folder: TensorFlow's checkpoint with the prefix `state`, and the marker."""
    row, pieces = store.archive(user=request.user, job_id=job_id, checkpoint_id=checkpoint_id)
    return bytes_attachment(request, pieces, name=f"j-{job_id}-{row.name}.tar", kind="application/x-tar")


@router.post(
    "/jobs/{int:job_id}/checkpoints/{int:checkpoint_id}/resume",
    response={201: shapes.Job, **PROBLEMS},
    summary="Continue from a checkpoint",
    throttle=WRITES,
)
def start_from_checkpoint(request: SignedIn, job_id: int, checkpoint_id: int) -> Status[jobs.JobSummary]:
    """A new job that asks for the same and begins there. To change anything, use `resume_from` in `POST /jobs`."""
    job = service.start_from_checkpoint(job_id=job_id, checkpoint_id=checkpoint_id, by=request.user)
    return Status(201, jobs.summary(jobs.get(request.user, job.pk)))


@agents_only("PUT")
def offered(request: HttpRequest, replica_id: int, name: str) -> HttpResponse:
    """An agent shows the marker of a complete checkpoint, and hears which files are missing. 201 when none is."""
    found = store.offer(
        node=node_of(request),
        replica_id=replica_id,
        attempt=attempt_of(request),
        marker=request.read(store.MARKER_BYTES_MAX),
    )
    return JsonResponse({"missing": found.missing}, status=201 if found.row else 200)


@agents_only("PUT")
def part(request: HttpRequest, replica_id: int, name: str, file: str) -> HttpResponse:
    """One file of a checkpoint that was offered."""
    store.take(
        node=node_of(request),
        replica_id=replica_id,
        attempt=attempt_of(request),
        name=name,
        file=file,
        chunks=pieces_of(request),
    )
    return JsonResponse({}, status=201)


@agents_only("GET")
def fetched(request: HttpRequest, checkpoint_id: int, file: str) -> HttpResponseBase:
    """One file of the checkpoint that a replica of this node begins with."""
    content, size_bytes = store.open_for(node_of(request), checkpoint_id, file)
    return attachment(request, content, name=file, size_bytes=size_bytes)
