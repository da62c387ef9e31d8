"""The points behind a chart as CSV: all of them, whoever may see the page, in little memory."""

import csv
import tracemalloc
from collections.abc import Callable

from django.test import Client
from django.urls import reverse

from orchestrator import series
from orchestrator.models import User
from tests.factories import make_job, make_replica

Browser = Callable[[User], Client]


def _append(owner: series.Owner, name: str, first: int, count: int) -> None:
    steps = range(first, first + count)
    curve = series.curve_of(steps, [float(step) for step in steps], [step / 2 for step in steps])
    series.append([series.Addition(owner, name, curve)])


def _rows(answer: object) -> list[list[str]]:
    return list(csv.reader(answer.getvalue().decode().splitlines()))  # type: ignore[attr-defined]


def test_every_point_of_every_attempt_is_there(client_of: Browser, member: User, viewer: User) -> None:
    jobs = [make_job(owner=member, attempt=2), make_job(owner=member)]
    for attempt, job in ((1, jobs[0]), (2, jobs[0]), (1, jobs[1])):
        owner = series.Owner(make_replica(job, attempt=attempt).pk)
        for first in range(0, 60_000, 4_000):
            _append(owner, "loss", first, 4_000)
        _append(owner, "loss", 60_000, 5)
        _append(owner, "val_loss", 1, 1)
        _append(owner, "other", 1, 1)
    asked = {"jobs": f"{jobs[0].pk},{jobs[1].pk}", "name": ["loss", "val_loss"]}
    answer = client_of(viewer).get(reverse("points"), asked)
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert f"j{jobs[0].pk}-j{jobs[1].pk}-loss.csv" in answer.headers["Content-Disposition"]
    head, *rows = _rows(answer)
    assert head == ["job", "series", "replica", "attempt", "step", "time", "value"]
    assert len(rows) == 3 * 60_006
    of_one = [row for row in rows if row[0] == str(jobs[0].pk) and row[1] == "loss" and row[3] == "2"]
    assert [int(row[4]) for row in of_one] == list(range(60_005))
    assert of_one[7][2:] == ["worker:0", "2", "7", "7.0", "3.5"]
    assert sorted({row[1] for row in rows}) == ["loss", "val_loss"]


def test_a_long_series_is_not_held_in_memory(client_of: Browser, member: User) -> None:
    job = make_job(owner=member)
    owner = series.Owner(make_replica(job).pk)
    for first in range(0, 400_000, 8_000):
        _append(owner, "loss", first, 8_000)
    answer = client_of(member).get(reverse("points"), {"jobs": job.pk, "name": "loss"})
    tracemalloc.start()
    try:
        size = sum(len(piece) for piece in answer.streaming_content)  # type: ignore[attr-defined]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size > 10_000_000
    assert peak < size / 2


def test_points_that_are_sorted_in_meanwhile_come_once(member: User) -> None:
    owner = series.Owner(make_replica(make_job(owner=member)).pk)
    for block in range(series.PAGE_BLOCKS):
        _append(owner, "loss", block * series.FULL_BLOCK_POINTS, series.FULL_BLOCK_POINTS - (block == 7))
    curves, first = series.page(owner, "loss")
    assert first is not None
    begun = 8 * series.FULL_BLOCK_POINTS
    for step in range(begun, begun + series.SORTED_AFTER_BLOCKS + 3):
        _append(owner, "loss", step, 1)
    rest, end = series.page(owner, "loss", first=first)
    assert end is None
    steps = series.join([*curves, *rest]).steps.tolist()
    assert steps == series.read([owner])[owner, "loss"].steps.tolist()


def test_a_name_is_no_formula_and_a_foreign_job_is_not_there(client_of: Browser, member: User) -> None:
    job = make_job(owner=member)
    _append(series.Owner(make_replica(job).pk), '=cmd|"x",1', 0, 1)
    answer = client_of(member).get(reverse("points"), {"jobs": job.pk, "name": '=cmd|"x",1'})
    assert _rows(answer)[1][1] == '\'=cmd|"x",1'
    assert client_of(member).get(reverse("points"), {"jobs": job.pk + 1, "name": "loss"}).status_code == 404
