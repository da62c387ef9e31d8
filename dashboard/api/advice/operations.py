"""REST of advices: which strategy suits a job on its cluster."""

from datetime import UTC, datetime
from typing import Any

from ninja import Router, Status

from dashboard.api.advice import shapes
from dashboard.api.jobs import body_of
from dashboard.api.limits import WRITES
from dashboard.api.problems import PROBLEMS
from dashboard.requests import SignedIn
from orchestrator.queries.rows import Advice
from orchestrator.services.advice import advising
from orchestrator.services.errors import FieldError, Invalid

router = Router(tags=["advice"])

ASKED = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "allOf": [
                        {"$ref": "#/components/schemas/JobRequest"},
                        {"$ref": "#/components/schemas/AdviceWishes"},
                    ]
                }
            }
        },
    }
}


@router.post(
    "/advice",
    response={202: shapes.Advice, **PROBLEMS},
    summary="Ask which strategy suits a job",
    openapi_extra=ASKED,
    throttle=WRITES,
)
def begin_advice(request: SignedIn) -> Status[dict[str, Any]]:
    """A job as `POST /jobs` takes it; what it says of strategy and sizes is not read. A node looks at its model;
    nothing is started."""
    body = dict(body_of(request))
    measure, wishes = body.pop("measure", True), body.pop("wishes", {})
    if not isinstance(measure, bool):
        raise Invalid([FieldError("measure", "true or false")])
    row = advising.begin(request=body, measure=measure, wishes=wishes, by=request.user, now=datetime.now(UTC))
    return Status(202, _told(row))


@router.get("/advice/{int:advice_id}", response={200: shapes.Advice, **PROBLEMS}, summary="An advice")
def get_advice(request: SignedIn, advice_id: int) -> dict[str, Any]:
    """One's own; kept for a week. Ask again while it is running."""
    return _told(advising.answer_to(advice_id=advice_id, by=request.user, now=datetime.now(UTC)))


def _told(row: Advice) -> dict[str, Any]:
    names = ("status", "reason", "created_at", "ended_at")
    found = {"candidates": [], "verdict": None, "would_change": [], "inputs": {}} | (row.result or {})
    return found | {"id": row.pk, "level": row.level or None} | {name: getattr(row, name) for name in names}
