"""The OpenAPI document: there for whoever may call, whole, and true to what is answered."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from django.test import Client
from pydantic import TypeAdapter

from dashboard.api import machine_shapes, shapes
from dashboard.api.v1 import api
from orchestrator.domain.job.validation import KNOWN_FIELDS, read_fields
from orchestrator.models import User
from tests.api.conftest import Caller
from tests.factories import make_job, make_node, make_replica
from worker_agent.protocol.job.job_spec import FIELDS, JobSpec
from worker_agent.protocol.job.strategies import STRATEGIES
from worker_agent.protocol.states import Strategy

OPERATIONS = {
    ("get", "/jobs"),
    ("post", "/jobs"),
    ("post", "/jobs/preview"),
    ("post", "/advice"),
    ("get", "/advice/{advice_id}"),
    ("post", "/preflight"),
    ("get", "/preflight/{preflight_id}"),
    ("delete", "/preflight/{preflight_id}"),
    ("get", "/strategy-tests"),
    ("post", "/strategy-tests"),
    ("get", "/strategy-tests/{test_id}"),
    ("delete", "/strategy-tests/{test_id}"),
    ("post", "/strategy-tests/{test_id}/stop"),
    ("post", "/strategy-tests/{test_id}/pause"),
    ("post", "/strategy-tests/{test_id}/resume"),
    ("post", "/strategy-tests/{test_id}/again"),
    ("post", "/strategy-tests/{test_id}/candidates"),
    ("get", "/strategy-tests/{test_id}/report.csv"),
    ("get", "/jobs/{job_id}"),
    ("delete", "/jobs/{job_id}"),
    ("post", "/jobs/bulk"),
    ("put", "/jobs/{job_id}/tags"),
    ("get", "/jobs/{job_id}/notes"),
    ("put", "/jobs/{job_id}/notes"),
    ("post", "/jobs/{job_id}/stop"),
    ("post", "/jobs/{job_id}/pause"),
    ("post", "/jobs/{job_id}/resume"),
    ("post", "/jobs/{job_id}/retry"),
    ("get", "/jobs/{job_id}/replicas"),
    ("get", "/jobs/{job_id}/series"),
    ("get", "/jobs/{job_id}/logs"),
    ("get", "/jobs/{job_id}/printed"),
    ("post", "/jobs/{job_id}/printed"),
    ("get", "/jobs/{job_id}/restarts"),
    ("get", "/jobs/{job_id}/events"),
    ("get", "/jobs/{job_id}/artifacts"),
    ("get", "/jobs/{job_id}/artifacts.zip"),
    ("get", "/jobs/{job_id}/artifacts/{artifact_id}"),
    ("get", "/jobs/{job_id}/checkpoints"),
    ("get", "/jobs/{job_id}/checkpoints/{checkpoint_id}"),
    ("post", "/jobs/{job_id}/checkpoints/{checkpoint_id}/resume"),
    ("get", "/recipes"),
    ("get", "/clusters"),
    ("get", "/clusters/{name}"),
    ("post", "/clusters"),
    ("post", "/clusters/{name}/join-tokens"),
    ("get", "/nodes"),
    ("get", "/nodes/{node_id}"),
    ("post", "/nodes/{node_id}/cordon"),
    ("post", "/nodes/{node_id}/uncordon"),
    ("post", "/nodes/{node_id}/drain"),
    ("post", "/nodes/{node_id}/reclaim"),
    ("post", "/nodes/{node_id}/rename"),
    ("delete", "/nodes/{node_id}"),
}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """The document."""
    return dict(api.get_openapi_schema())


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(method, path, operation) of every operation."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method, path.removeprefix("/api/v1"), operation


def test_the_operations_are_these(document: dict[str, Any]) -> None:
    assert {(method, path) for method, path, _ in operations(document)} == OPERATIONS
    assert document["openapi"].startswith("3.")


def test_every_operation_says_what_it_answers_and_who_may_ask(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        where = f"{method} {path}"
        assert operation["summary"], where
        assert operation["description"], where
        assert len(operation["security"]) == 2, where
        answers = {str(status): answer for status, answer in operation["responses"].items()}
        good = [status for status in answers if status.startswith("2")]
        assert len(good) == 1, where
        for status in ("401", "403", "404", "409", "413", "422", "429"):
            schema = answers[status]["content"]["application/json"]["schema"]
            assert schema["$ref"].endswith("/Problem"), f"{where} {status}"
        if good != ["204"]:
            assert answers[good[0]]["content"], where


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    def references(part: Any) -> Iterator[str]:
        if isinstance(part, dict):
            if isinstance(part.get("$ref"), str):
                yield part["$ref"]
            for value in part.values():
                yield from references(value)
        elif isinstance(part, list):
            for value in part:
                yield from references(value)

    known = document["components"]["schemas"]
    found = set(references(document))
    assert "#/components/schemas/JobRequest" in found
    assert {reference.removeprefix("#/components/schemas/") for reference in found} <= set(known)


def test_the_document_and_its_page_are_for_people_who_are_signed_in(
    viewer: User, client_of: Callable[[User], Client], calls_as: Caller
) -> None:
    browser = client_of(viewer)
    page = browser.get("/api/v1/docs")
    assert page.status_code == 200
    text = page.content.decode()
    assert "/static/ninja/swagger-ui-bundle.js" in text
    assert "https://" not in text
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert browser.get("/api/v1/openapi.json").json()["info"]["title"] == "Trainyard"
    assert calls_as(viewer).get("/openapi.json").status_code == 200
    assert Client().get("/api/v1/openapi.json").status_code == 401
    stranger = Client().get("/api/v1/docs", headers={"Accept": "text/html"})
    assert stranger.headers["Location"] == "/sign-in/?next=/api/v1/docs"


@pytest.mark.django_db
def test_answers_have_the_declared_shapes(member: User, calls_as: Caller) -> None:
    job = make_job(owner=member)
    make_replica(job, node=make_node(job.cluster))
    program = calls_as(member)
    for path, kind in [
        ("/jobs", shapes.JobPage),
        (f"/jobs/{job.pk}", shapes.Job),
        ("/clusters", list[machine_shapes.Cluster]),
        ("/nodes", list[machine_shapes.Node]),
        ("/recipes", list[shapes.Recipe]),
    ]:
        TypeAdapter(kind).validate_python(program.get(path).json())


def test_a_job_is_described_with_every_field_there_is() -> None:
    assert set(shapes.JobRequest.model_fields) == set(KNOWN_FIELDS)
    assert set(shapes.Spec.model_fields) == {field.name for field in msgspec.structs.fields(JobSpec)}


def test_what_the_document_allows_is_what_is_taken() -> None:
    described = shapes.JobRequest.model_json_schema()
    for name, row in FIELDS.items():
        schema = described["properties"][name]
        if row.options:
            reference = schema.get("$ref") or schema["anyOf"][0]["$ref"]
            assert described["$defs"][reference.rpartition("/")[2]]["enum"] == [str(option) for option in row.options]
        if row.type is int:
            numbers = schema.get("anyOf", [schema])[0]
            assert (numbers["minimum"], numbers["maximum"]) == (row.low, row.high), name


@pytest.mark.parametrize("strategy", list(Strategy))
def test_the_document_tells_the_default_under_each_strategy(strategy: Strategy) -> None:
    found = read_fields({"name": "x", "strategy": strategy.value}, None).values
    for name, row in FIELDS.items():
        known = shapes.JobRequest.model_fields[name]
        if name in STRATEGIES[strategy].defaults:
            assert known.default is None
            value = "all of the gang's devices" if name == "model_parallel" else found[name]
            assert re.search(rf" {value} under [a-z_, ]*{strategy}", known.description or ""), name
        elif known.default is not None and not row.required:
            assert known.default == found[name], name
