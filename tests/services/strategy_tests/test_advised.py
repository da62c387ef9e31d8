"""Testing what was advised."""

import pytest

from orchestrator.models import User
from orchestrator.services.errors import Invalid
from orchestrator.services.strategy_tests import creating
from tests.factories import make_user
from tests.services.advice.test_advising import MODEL, answer, begin, told
from tests.services.gang.gangs import make_lab
from tests.services.strategy_tests.test_strategy_tests import asked

pytestmark = pytest.mark.django_db


def test_the_best_of_each_strategy_are_tested_one_device_first(member: User) -> None:
    cluster = make_lab()
    row = begin(cluster, member, wishes={"staleness": "allowed"})
    answer(row, model=MODEL)
    ranked = [each for each in told(row, member).result["candidates"] if each["fits"]]
    test = creating.create(asked=asked(cluster, candidates="advised"), by=member)
    layouts = [each.layout for each in test.candidates.all()]
    strategies = [each["strategy"] for each in layouts]
    assert strategies[0] == "one_device"
    assert 2 <= len(strategies) == len(set(strategies)) <= 5
    for layout in layouts:
        best = next(each for each in ranked if each["strategy"] == layout["strategy"])
        assert {**layout, "global_batch_size": 128} == best["layout"]


def test_stale_gradients_that_were_refused_are_not_tested(member: User) -> None:
    cluster = make_lab()
    row = begin(cluster, member)
    answer(row, model=MODEL)
    told(row, member)
    test = creating.create(asked=asked(cluster, candidates="advised"), by=member)
    assert "parameter_server" not in {each.layout["strategy"] for each in test.candidates.all()}


def test_without_an_advice_for_this_very_job_there_is_a_sentence(member: User) -> None:
    cluster = make_lab()
    row = begin(cluster, member, global_batch_size=64)
    answer(row, model=MODEL)
    told(row, member)
    for by in (member, make_user()):
        with pytest.raises(Invalid) as refused:
            creating.create(asked=asked(cluster, candidates="advised"), by=by)
        assert [error.field for error in refused.value.errors] == ["candidates"]
