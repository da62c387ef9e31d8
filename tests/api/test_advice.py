"""REST of advices."""

from http import HTTPStatus

import pytest

from orchestrator.models import Advice
from tests.services.advice.test_advising import MODEL, answer
from tests.services.gang.gangs import make_lab

pytestmark = pytest.mark.django_db
URL = "/api/v1/advice"


@pytest.fixture
def client(client_of, member):
    return client_of(member)


def post(client, **fields):
    body = {"cluster": make_lab().name, "recipe": "digits_mlp", "global_batch_size": 128} | fields
    return client.post(URL, body, content_type="application/json")


def test_from_asking_to_the_verdict(client) -> None:
    asked = post(client, wishes={"staleness": "allowed"})
    assert asked.status_code == HTTPStatus.ACCEPTED, asked.content
    assert (asked.json()["status"], asked.json()["level"]) == ("running", None)
    url = f"{URL}/{asked.json()['id']}"
    answer(Advice.objects.get(), model=MODEL)
    told = client.get(url).json()
    assert (told["status"], told["level"], told["reason"]) == ("done", "instant", "")
    assert told["verdict"]["strategy"] == "one_device"
    assert told["verdict"]["sentence"]
    best = told["candidates"][0]
    assert best["layout"]["strategy"] == "one_device"
    assert best["predicted"]["low_ms"] < best["predicted"]["step_time_ms"] < best["predicted"]["high_ms"]
    assert told["inputs"]["parameters"] == MODEL.parameters


def test_what_is_refused(client) -> None:
    assert post(client, measure="yes").status_code == HTTPStatus.UNPROCESSABLE_ENTITY
    assert post(client, kind="script", recipe=None).status_code == HTTPStatus.UNPROCESSABLE_ENTITY
    assert client.get(f"{URL}/0").status_code == HTTPStatus.NOT_FOUND
