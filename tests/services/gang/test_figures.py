"""The copies by which lists sort: they follow the job's metrics, also back."""

import pytest

from orchestrator.services.gang import figures
from tests.factories import make_job

pytestmark = pytest.mark.django_db


def test_copies_follow_a_job_that_goes_back_to_a_checkpoint() -> None:
    job = make_job(metrics={"loss": 0.5, "acc": "NaN"})
    figures.renew(job)
    assert dict(job.metric_rows.values_list("name", "value")) == {"loss": 0.5, "acc": None}
    job.metrics = {"loss": 0.9}
    figures.renew(job)
    assert dict(job.metric_rows.values_list("name", "value")) == {"loss": 0.9}
