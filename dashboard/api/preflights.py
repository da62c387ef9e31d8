"""REST of preflights: the nodes of a job that is not submitted yet look whether it could run."""

from datetime import UTC, datetime
from typing import Literal

from ninja import Field, Router, Schema, Status

from dashboard.api.jobs import JOB_REQUEST, body_of
from dashboard.api.limits import WRITES
from dashboard.api.problems import PROBLEMS
from dashboard.requests import SignedIn
from orchestrator.services.jobs import jobs
from orchestrator.services.trials import preflights

router = Router(tags=["jobs"])


class Found(Schema):
    """One finding."""

    node: str = Field(description="Empty for what the control plane found.")
    severity: Literal["error", "warning"] = Field(description="error: the job would fail.")
    what: str
    why: str
    remedy: str


class Preflight(Schema):
    """A check on the nodes, as far as they have answered. Ask again while it is running."""

    id: int
    state: Literal["running", "done"]
    created_at: datetime
    nodes: list[str] = Field(description="Those that the job would get now.")
    waiting: list[str] = Field(description="Those that have not answered.")
    findings: list[Found]
    facts: dict[str, str] = Field(description="What building the program showed, in words.")
    blocked: bool = Field(description="Whether a finding is an error.")


@router.post(
    "/preflight",
    response={202: Preflight, **PROBLEMS},
    summary="Check a job on its nodes",
    openapi_extra=JOB_REQUEST,
    throttle=WRITES,
)
def begin_preflight(request: SignedIn) -> Status[preflights.Answers]:
    """The nodes test the ports in both directions and the checkpoint folder; one builds the program. Starts no job."""
    row = jobs.check_job(request=body_of(request), by=request.user, now=datetime.now(UTC))
    return Status(202, get_preflight(request, row.pk))


@router.get("/preflight/{int:preflight_id}", response={200: Preflight, **PROBLEMS}, summary="What a check found")
def get_preflight(request: SignedIn, preflight_id: int) -> preflights.Answers:
    """Kept for a day; one's own."""
    return preflights.answers_to(preflight_id=preflight_id, by=request.user, now=datetime.now(UTC))


@router.delete(
    "/preflight/{int:preflight_id}", response={204: None, **PROBLEMS}, summary="Cancel a check", throttle=WRITES
)
def cancel_preflight(request: SignedIn, preflight_id: int) -> Status[None]:
    """The nodes end what they do for it, and it is forgotten. One that a job waits for ends with the job (409)."""
    preflights.cancel(preflight_id=preflight_id, by=request.user, now=datetime.now(UTC))
    return Status(204, None)
