"""Live events: they leave on commit, once per group when gathered, and are JSON-safe as built."""

import json
import math
from datetime import UTC, datetime

import pytest
from channels.layers import get_channel_layer
from django.db import transaction

from orchestrator import live
from orchestrator.models import Node, Replica

REPLICAS = live.replicas_changed()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, list[live.LiveEvent]]]:
    kept: list[dict[str, list[live.LiveEvent]]] = []
    monkeypatch.setattr(live, "_send", lambda messages: kept.append(dict(messages)))
    return kept


@pytest.mark.django_db(transaction=True)
def test_nothing_leaves_before_or_without_a_commit(sent: list[dict[str, list[live.LiveEvent]]]) -> None:
    with transaction.atomic():
        live.announce("jobs", [REPLICAS])
        assert sent == []
    assert sent == [{"jobs": [REPLICAS]}]
    with transaction.atomic():
        live.announce("jobs", [REPLICAS])
        transaction.set_rollback(True)
    assert len(sent) == 1


@pytest.mark.django_db(transaction=True)
def test_what_is_gathered_leaves_as_one_message_per_group(sent: list[dict[str, list[live.LiveEvent]]]) -> None:
    other = live.node_changed(Node(pk="n", state="ready", state_reason=""))
    with live.gathered():
        for _ in range(2):
            with transaction.atomic():
                live.announce("job.1", [REPLICAS])
                live.announce("jobs", [other])
        assert sent == []
    assert sent == [{"job.1": [REPLICAS, REPLICAS], "jobs": [other, other]}]


@pytest.mark.django_db(transaction=True)
def test_the_message_reaches_the_channel_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    published: list[object] = []
    monkeypatch.setattr(get_channel_layer(), "publish", published.append)
    monkeypatch.setattr(get_channel_layer(), "heard", lambda groups: [each for each in groups if each == "job.1"])
    live.announce("job.1", [REPLICAS])
    assert published == [{"job.1": live.frame([REPLICAS])}]
    live.announce_each({"job.1": [REPLICAS], "job.2": [REPLICAS]})
    assert published == [{"job.1": live.frame([REPLICAS])}] * 2, "nobody listens to the other one"
    live.announce("jobs", [REPLICAS])
    assert len(published) == 2


@pytest.mark.django_db(transaction=True)
def test_a_channel_layer_that_is_down_stops_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def heard(groups: object) -> None:
        raise ConnectionError("Redis is away")

    monkeypatch.setattr(get_channel_layer(), "heard", heard)
    live.announce("job.1", [REPLICAS])
    assert "were not sent" in caplog.text


def test_numbers_that_json_lacks_become_words() -> None:
    value = {"a": [1, 2.5, math.nan, math.inf, -math.inf, None, True, "x"], 3: (datetime(2027, 1, 15, tzinfo=UTC),)}
    safe = live.jsonable(value)
    assert safe == {"a": [1, 2.5, "NaN", "Infinity", "-Infinity", None, True, "x"], "3": ["2027-01-15T00:00:00+00:00"]}
    assert json.loads(json.dumps(safe, allow_nan=False)) == safe
    with pytest.raises(TypeError):
        live.jsonable({1, 2})


def test_of_a_flood_the_last_part_travels() -> None:
    event = live.log_stored(
        Replica(role="worker", index=0, attempt=1), start=0, end=10**6, at=1.0, text="x" * 999_999 + "y"
    )
    text = str(event["text"])
    assert text.startswith("… 934464 characters")
    assert text.endswith("y")
    assert (event["start"], event["end"]) == (0, 10**6)
