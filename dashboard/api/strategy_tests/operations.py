"""REST of strategy tests: one job under several strategies, measured one after the other."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from django.http import HttpResponseBase
from ninja import Router, Status
from ninja.params.functions import Query

from dashboard.api.jobs import body_of
from dashboard.api.limits import WRITES
from dashboard.api.problems import PROBLEMS
from dashboard.api.strategy_tests import shapes
from dashboard.downloads import bytes_attachment
from dashboard.requests import SignedIn
from dashboard.strategy_report import csv_of
from orchestrator.domain.strategy_test.measured import Spread
from orchestrator.queries import rows, strategy_tests
from orchestrator.queries.strategy_tests import CandidateView
from orchestrator.services.strategy_tests import creating, running

router = Router(tags=["strategy tests"])

ASKED = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/StrategyTestRequest"}}},
    }
}


@router.get("/strategy-tests", response={200: shapes.TestPage, **PROBLEMS}, summary="Strategy tests, newest first")
def list_tests(request: SignedIn, before: int | None = None, limit: int = Query(50, ge=1, le=200)) -> dict[str, Any]:
    """Of everybody."""
    items, cursor = strategy_tests.page(request.user, before=before, limit=limit)
    return {"items": [_line(each) for each in items], "next": cursor}


@router.post(
    "/strategy-tests",
    response={201: shapes.StrategyTest, **PROBLEMS},
    summary="Test strategies",
    openapi_extra=ASKED,
    throttle=WRITES,
)
def create_test(request: SignedIn) -> Status[dict[str, Any]]:
    """Runs each candidate as a job, one after the other, round by round."""
    test = creating.create(asked=body_of(request), by=request.user)
    return Status(201, _told(request, test.pk))


@router.get(
    "/strategy-tests/{int:test_id}", response={200: shapes.StrategyTest, **PROBLEMS}, summary="One strategy test"
)
def get_test(request: SignedIn, test_id: int) -> dict[str, Any]:
    """What was measured so far, and the verdict."""
    return _told(request, test_id)


@router.post(
    "/strategy-tests/{int:test_id}/stop",
    response={200: shapes.StrategyTest, **PROBLEMS},
    summary="Stop a strategy test",
    throttle=WRITES,
)
def stop_test(request: SignedIn, test_id: int) -> dict[str, Any]:
    """The run that is under way is stopped, too; what was measured stays."""
    running.stop(test_id=test_id, by=request.user)
    return _told(request, test_id)


@router.post(
    "/strategy-tests/{int:test_id}/pause",
    response={200: shapes.StrategyTest, **PROBLEMS},
    summary="Pause a strategy test",
    throttle=WRITES,
)
def pause_test(request: SignedIn, test_id: int) -> dict[str, Any]:
    """The run that is under way comes to its end; no further one begins."""
    running.pause(test_id=test_id, by=request.user)
    return _told(request, test_id)


@router.post(
    "/strategy-tests/{int:test_id}/resume",
    response={200: shapes.StrategyTest, **PROBLEMS},
    summary="Go on with a strategy test",
    throttle=WRITES,
)
def resume_test(request: SignedIn, test_id: int) -> dict[str, Any]:
    """Of one that is paused or was stopped."""
    running.resume(test_id=test_id, by=request.user)
    return _told(request, test_id)


@router.post(
    "/strategy-tests/{int:test_id}/again",
    response={201: shapes.StrategyTest, **PROBLEMS},
    summary="Run a strategy test again",
    throttle=WRITES,
)
def test_again(request: SignedIn, test_id: int) -> Status[dict[str, Any]]:
    """A new test that asks for the same."""
    return Status(201, _told(request, creating.again(test_id=test_id, by=request.user).pk))


@router.post(
    "/strategy-tests/{int:test_id}/candidates",
    response={201: shapes.StrategyTest, **PROBLEMS},
    summary="Add a candidate",
    openapi_extra={"requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}},
    throttle=WRITES,
)
def add_candidate(request: SignedIn, test_id: int) -> Status[dict[str, Any]]:
    """The body is one element of `candidates`. A test that was over goes on."""
    creating.extend(test_id=test_id, layout=body_of(request), by=request.user)
    return Status(201, _told(request, test_id))


@router.delete(
    "/strategy-tests/{int:test_id}", response={204: None, **PROBLEMS}, summary="Delete a strategy test", throttle=WRITES
)
def delete_test(request: SignedIn, test_id: int) -> Status[None]:
    """Of one that is over; the jobs that it ran stay."""
    running.delete(test_id=test_id, by=request.user)
    return Status(204, None)


@router.get(
    "/strategy-tests/{int:test_id}/report.csv",
    response={200: str, **PROBLEMS},
    summary="The table of a strategy test",
    openapi_extra={"responses": {200: {"content": {"text/csv": {"schema": {"type": "string"}}}}}},
)
def report_csv(request: SignedIn, test_id: int) -> HttpResponseBase:
    """A line for each run."""
    test = strategy_tests.get(request.user, test_id)
    return bytes_attachment(request, [csv_of(test)], name=f"t-{test.pk}.csv", kind="text/csv; charset=utf-8")


def _told(request: SignedIn, test_id: int) -> dict[str, Any]:
    test = strategy_tests.get(request.user, test_id)
    report = strategy_tests.report(test)
    verdict = report.verdict
    winner = next((each.result.strategy.value for each in report.candidates if each.row.place == verdict.place), "")
    target = {"metric": test.target_metric, "value": test.target_value} if test.target_value is not None else None
    return _line(test) | {
        "cluster": test.cluster.name,
        "samples": test.samples,
        "minutes": test.minutes,
        "repeats": test.rounds,
        "target": target,
        "candidates": [_candidate(each) for each in report.candidates],
        "verdict": {"place": verdict.place, "strategy": winner, "sentence": verdict.sentence, "sure": verdict.is_sure},
    }


def _line(test: rows.StrategyTest) -> dict[str, Any]:
    own = {"id": test.pk, "name": test.name, "status": test.status, "owner": test.owner.username}
    return own | {"created_at": test.created_at, "ended_at": test.ended_at}


def _candidate(view: CandidateView) -> dict[str, Any]:
    last = view.last
    return {
        "place": view.row.place,
        "label": view.row.label,
        "layout": view.row.layout,
        "status": view.status,
        "reason": view.reason,
        "jobs": list(_jobs_of(view)),
        "examples_per_s": _figure(view.rate),
        "step_time_ms": _figure(view.step_time_ms),
        "efficiency": view.efficiency,
        "epoch_s": view.epoch_s,
        "target_s": _figure(view.to_target),
        "final": dict(last.final) if last else {},
        "parts": dict(last.parts) if last else {},
        "staleness": last.staleness if last else None,
        "memory_bytes": last.memory_bytes if last else None,
        "device_hours": sum(run.device_hours for run in view.result.runs),
        "restarts": sum(run.restarts for run in view.result.runs),
    }


def _jobs_of(view: CandidateView) -> Iterable[int]:
    return (run.job_id for run in view.row.runs.all() if run.job_id is not None)


def _figure(spread: Spread | None) -> dict[str, float] | None:
    return asdict(spread) if spread else None
