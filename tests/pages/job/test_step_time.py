"""The panel of where a step's time goes."""

from datetime import UTC, datetime, timedelta
from time import time

import pytest
from django.test import Client

from orchestrator import series
from orchestrator.models import Replica, User
from tests.factories import make_job, make_replica
from tests.pages.html import html_of
from worker_agent.protocol.records import StepPart
from worker_agent.protocol.states import JobStatus, Kind, Strategy

pytestmark = pytest.mark.django_db


def tell(replica: Replica, samples: int, *, at: float | None = None, **ms: float) -> None:
    steps = [100 * (number + 1) for number in range(samples)]
    times = [(at or time()) - 10 * (samples - number) for number in range(samples)]
    owner = series.Owner(replica_id=replica.pk)
    series.append(
        series.Addition(owner, part.series, series.curve_of(steps, times, [ms.get(part, 0.0)] * samples))
        for part in StepPart
    )


def panel(client: Client, job_id: int) -> str:
    page = html_of(client.get(f"/jobs/{job_id}/state/"))
    return page[page.index('id="job-step-time"') : page.index('id="replicas"')]


def test_nothing_stands_there_before_anything_was_measured(client_of, member: User) -> None:
    job = make_job(owner=member, status=JobStatus.RUNNING)
    make_replica(job)
    assert "Where a step" not in panel(client_of(member), job.pk)


def test_it_shows_the_parts_of_each_replica_and_names_who_holds_the_others_up(client_of, member: User) -> None:
    job = make_job(owner=member, status=JobStatus.RUNNING, spec={"workers": 2})
    quick, slow = (make_replica(job, index=number, node_name=f"gpu-{number + 1}") for number in (0, 1))
    tell(quick, 4, compute=10, wait=7, communication=3)
    tell(slow, 4, compute=17, communication=3)
    said = panel(client_of(member), job.pk)
    assert "Worker 1 (gpu-2) is 1.7 × slower than the others, who wait 35 % of a step for it." in said
    assert 'aria-label="Compute 10.00 ms. Waiting for the slowest 7.00 ms. Communication 3.00 ms. "' in said
    assert '<rect data-part="wait" x="50.0%" width="35.0%"' in said
    assert said.count("20.0 ms") == 2


def test_what_is_old_or_no_number_is_left_out(client_of, member: User) -> None:
    job = make_job(owner=member, status=JobStatus.RUNNING)
    replica = make_replica(job)
    tell(replica, 4, at=time() - 1000, compute=10)
    tell(replica, 4, compute=float("nan"), wait=float("inf"), input=-1)
    assert "Where a step" not in panel(client_of(member), job.pk)


@pytest.mark.parametrize(
    ("minutes", "spec", "comes"),
    [
        (1, {}, True),
        (3, {}, False),
        (1, {"kind": Kind.SCRIPT}, False),
        (1, {"strategy": Strategy.PARAMETER_SERVER, "ps": 1}, False),
    ],
)
def test_a_young_training_says_when_figures_come(
    client_of, member: User, minutes: int, spec: dict, comes: bool
) -> None:
    job = make_job(owner=member, status=JobStatus.RUNNING, spec=spec)
    make_replica(job)
    job.attempts.update(running_at=datetime.now(UTC) - timedelta(minutes=minutes))
    assert ("The first figures come after 20 seconds of training." in panel(client_of(member), job.pk)) is comes
