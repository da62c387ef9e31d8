"""The figures at the top of the job page: of a script, only what it told."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.models import User
from tests.factories import make_job
from worker_agent.protocol.states import JobStatus


@pytest.mark.parametrize("status", [JobStatus.RUNNING, JobStatus.SUCCEEDED])
def test_a_script_shows_what_it_has_told_and_nothing_else(
    client_of: Callable[[User], Client], member: User, status: JobStatus
) -> None:
    now = datetime.now(UTC)
    job = make_job(
        owner=member,
        status=status,
        metrics={"loss": 0.25, "<b>": "NaN"},
        step=7,
        started_at=now - timedelta(minutes=5),
        ended_at=now if status == JobStatus.SUCCEEDED else None,
        spec={"kind": "script"},
    )
    answer = client_of(member).get(reverse("job", args=[job.pk]))
    told = [("Time at work", "5 min"), ("Loss", "0.2500"), ("<b>", "NaN")]
    assert [(tile.label, tile.figure) for tile in answer.context["tiles"]] == told
    page = answer.content.decode()
    assert 'step <span data-live="step">7</span>' in page
    for invented in ("percent done", "of 0", "mean of an epoch"):
        assert invented not in page, invented


def test_the_first_figure_of_a_script_is_what_is_taken_as_its_loss(
    client_of: Callable[[User], Client], member: User
) -> None:
    metrics = {"Accuracy": 0.5, "Train/loss": 0.25, "Validation/loss": 0.3}
    job = make_job(owner=member, status=JobStatus.RUNNING, metrics=metrics, spec={"kind": "script"})
    tiles = client_of(member).get(reverse("job", args=[job.pk])).context["tiles"]
    assert [tile.label for tile in tiles] == ["Time at work", "Train/loss", "Accuracy", "Validation/loss"]


def test_a_recipe_has_room_for_its_figures_before_there_are_any(
    client_of: Callable[[User], Client], member: User
) -> None:
    tiles = client_of(member).get(reverse("job", args=[make_job(owner=member).pk])).context["tiles"]
    assert {tile.figure for tile in tiles} == {"–"}  # noqa: RUF001
    assert len(tiles) == 5
