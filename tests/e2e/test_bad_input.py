"""Bad programs, bad numbers, bad names: each gets a clear answer, at submission where that is possible."""

import base64
import io
import zipfile
from typing import Any

import pytest

from tests.e2e import recipes
from tests.e2e.stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.tf]


def refused(stack: Stack, **request: object) -> dict[str, str]:
    """The field errors of a POST /jobs that must be refused."""
    defaults: dict[str, object] = {"name": "bad", "cluster": "local", "strategy": "one_device", "epochs": 1}
    answer = stack.rest.post("/jobs", json=defaults | request)
    assert answer.status_code == 422, answer.text
    return {error["field"]: error["message"] for error in answer.json()["errors"]}


def text(source: str) -> dict[str, str]:
    return {"filename": "recipe.py", "text": source}


def archive(*members: tuple[str, bytes]) -> dict[str, str]:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members:
            file.writestr(name, data)
    return {"filename": "code.zip", "content_base64": base64.b64encode(content.getvalue()).decode()}


def submit_code(stack: Stack, source: str, **request: object) -> Any:
    return stack.submit(recipe=None, code=text(source), **request)


@pytest.mark.parametrize(
    ("request_part", "field", "words"),
    [
        ({"code": text(recipes.SYNTAX_ERROR)}, "code", "line 7"),
        ({"code": text(recipes.MISSING_FUNCTION)}, "code", "build_dataset"),
        ({"code": archive(("recipe.py", recipes.SMALL.encode()), ("zeros", bytes(200_000_000)))}, "code", "unpack"),
        ({"code": archive(("recipe.py", recipes.SMALL.encode()), ("../evil.py", b""))}, "code", "../evil.py"),
        ({"recipe": "digits_mlp", "cluster": "nowhere"}, "cluster", "there is local"),
        (
            {"recipe": "digits_mlp", "strategy": "multi_worker_mirrored", "workers": 2, "global_batch_size": 65},
            "global_batch_size",
            "64",
        ),
        (
            {"recipe": "digits_mlp", "strategy": "multi_worker_mirrored", "workers": 50, "global_batch_size": 100},
            "workers",
            "50",
        ),
    ],
)
def test_refused_with_the_field_and_the_remedy(
    stack: Stack, request_part: dict[str, object], field: str, words: str
) -> None:
    errors = refused(stack, **request_part)
    assert list(errors) == [field]
    assert words in errors[field]


def test_unknown_node_is_404(stack: Stack) -> None:
    assert stack.rest.post("/nodes/0123456789ab/cordon").status_code == 404


def test_loss_that_is_not_a_number_fails_the_job_with_the_step(stack: Stack) -> None:
    job = submit_code(stack, recipes.NOT_FINITE, epochs=3)
    ended = stack.wait_for_job(job["id"], "failed")
    assert ended["cause"] == "loss_not_finite"
    assert "step 1" in ended["reason"]


def test_a_10_mb_log_line_harms_nobody(stack: Stack) -> None:
    job = submit_code(stack, recipes.LONG_LINE, epochs=1)
    stack.wait_for_job(job["id"], "succeeded")
    size, offset = 0, 0
    while True:
        part = stack.get(f"/jobs/{job['id']}/logs", replica="worker:0", offset=offset, limit=1_000_000)
        if part["next"] == offset:
            break
        size += part["text"].count("x")
        offset = part["next"]
    assert size >= 10_000_000


def test_a_metric_named_like_a_tag_is_only_a_name(stack: Stack) -> None:
    job = submit_code(stack, recipes.ODD_METRIC, epochs=1)
    stack.wait_for_job(job["id"], "succeeded")
    series = stack.get(f"/jobs/{job['id']}/series")
    assert recipes.ODD_METRIC_NAME in series
    assert series[recipes.ODD_METRIC_NAME][0]["values"]
