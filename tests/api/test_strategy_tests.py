"""REST of strategy tests."""

import csv
import io
from http import HTTPStatus

import pytest

from orchestrator.models import Run, StrategyTest
from orchestrator.services.strategy_tests import running
from tests.services.gang.gangs import make_lab
from tests.services.strategy_tests.test_strategy_tests import NOW, ONE, PAIR, asked, end_run

pytestmark = pytest.mark.django_db
URL = "/api/v1/strategy-tests"


@pytest.fixture
def client(client_of, member):
    return client_of(member)


def post(client, url, body=None):
    return client.post(url, body or {}, content_type="application/json")


def test_from_asking_to_the_verdict(client) -> None:
    target = {"metric": "loss", "value": 1e12}
    made = post(client, URL, asked(make_lab(), name="mine", minutes=1.5, samples=6400, target=target))
    assert made.status_code == HTTPStatus.CREATED, made.content
    told = made.json()
    assert (told["name"], told["status"], told["minutes"], told["samples"]) == ("mine", "running", 1.5, 6400)
    assert told["target"] == target
    assert [each["layout"] for each in told["candidates"]] == [ONE, PAIR]
    for rate in (10.0, 4.0):
        running.advance(now=NOW)
        end_run(rate, metrics={"val_accuracy": 0.75})
    running.advance(now=NOW)
    url = f"{URL}/{told['id']}"
    told = client.get(url).json()
    assert told["status"] == "finished"
    first, second = told["candidates"]
    assert first["examples_per_s"]["median"] == pytest.approx(1280)
    assert (first["status"], first["final"], len(first["jobs"])) == ("measured", {"val_accuracy": 0.75}, 1)
    assert second["efficiency"] == pytest.approx(0.2)
    assert second["target_s"] is not None
    assert (told["verdict"]["place"], told["verdict"]["strategy"]) == (0, "one_device")
    answer = client.get(f"{url}/report.csv")
    lines = list(csv.DictReader(io.StringIO(b"".join(answer.streaming_content).decode())))
    assert [(line["candidate"], line["run"], line["status"]) for line in lines] == [
        ("One device", "1", "measured"),
        ("MultiWorkerMirrored, 2 workers", "1", "measured"),
    ]
    assert float(lines[0]["final/val_accuracy"]) == 0.75
    again = post(client, f"{url}/again")
    assert again.status_code == HTTPStatus.CREATED
    assert [each["id"] for each in client.get(URL).json()["items"]] == [again.json()["id"], told["id"]]


def test_acts(client) -> None:
    url = f"{URL}/{post(client, URL, asked(make_lab())).json()['id']}"
    assert post(client, f"{url}/pause").json()["status"] == "paused"
    assert post(client, f"{url}/pause").status_code == HTTPStatus.CONFLICT
    assert post(client, f"{url}/resume").json()["status"] == "running"
    added = post(client, f"{url}/candidates", {"strategy": "mirrored", "devices_per_worker": 2})
    assert [each["label"] for each in added.json()["candidates"]][-1] == "Mirrored, 2 devices"
    assert client.delete(url).status_code == HTTPStatus.CONFLICT
    assert post(client, f"{url}/stop").json()["status"] == "stopped"
    assert client.delete(url).status_code == HTTPStatus.NO_CONTENT
    assert client.get(url).status_code == HTTPStatus.NOT_FOUND


def test_errors_name_the_fields(client) -> None:
    refused = post(client, URL, asked(make_lab(), candidates=[ONE | {"workers": "many"}], repeats=99))
    assert refused.status_code == HTTPStatus.UNPROCESSABLE_ENTITY
    assert {error["field"] for error in refused.json()["errors"]} >= {"candidates.0.workers", "repeats"}
    assert post(client, URL, {"nonsense": 1}).status_code == HTTPStatus.UNPROCESSABLE_ENTITY
    assert not StrategyTest.objects.exists()


def test_a_reason_is_no_formula_in_a_spreadsheet(client) -> None:
    url = f"{URL}/{post(client, URL, asked(make_lab())).json()['id']}"
    running.advance(now=NOW)
    Run.objects.update(is_over=True, reason="=HYPERLINK(1)")
    text = b"".join(client.get(f"{url}/report.csv").streaming_content).decode()
    assert "'=HYPERLINK" in text


def test_a_viewer_reads_and_makes_nothing(client_of, viewer, client) -> None:
    url = f"{URL}/{post(client, URL, asked(make_lab())).json()['id']}"
    looking = client_of(viewer)
    assert looking.get(url).status_code == HTTPStatus.OK
    assert post(looking, f"{url}/stop").status_code == HTTPStatus.FORBIDDEN
