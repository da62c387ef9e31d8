"""The JSON column gives what Django's own gives."""

import pytest

from orchestrator.models import Job
from tests.factories import make_job

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        None,
        "text",
        "",
        1.5,
        True,
        2**70,
        -0.0,
        {"a": [1, {"b": "é\u2028\U0001f600"}]},
    ],
)
def test_what_was_stored_comes_back(value: object) -> None:
    job = make_job()
    Job.objects.filter(pk=job.pk).update(metrics={"value": value})
    found = Job.objects.get(pk=job.pk)
    assert found.metrics == {"value": value}
    assert Job.objects.values_list("metrics__value", flat=True).get() == value


def test_migrations_see_djangos_own() -> None:
    assert Job._meta.get_field("spec").deconstruct()[1] == "django.db.models.JSONField"
