"""The form that asks for a strategy test: what it takes over, what it proposes, where its errors stand."""

from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.models import Cluster, StrategyTest, User
from orchestrator.services.jobs import jobs
from tests.pages.fields import Fields
from tests.pages.html import html_of
from tests.services.gang.gangs import make_lab

Browser = Callable[[User], Client]
NEW = "strategy_test_new"


@pytest.fixture
def browser(client_of: Browser, member: User) -> Client:
    make_lab()
    return client_of(member)


def form_of(browser: Client, **asked: object) -> tuple[str, dict[str, object]]:
    """Where the form is sent, and what it holds as a browser would send it."""
    url = f"{reverse(NEW)}?{'&'.join(f'{name}={value}' for name, value in asked.items())}"
    answer = browser.get(url)
    return url, Fields(answer.content.decode()).values | {"use": answer.context["form"].chosen}


def test_of_nothing_it_asks_for_a_program(browser: Client) -> None:
    page = html_of(browser.get(reverse(NEW)))
    assert "Which program?" in page
    assert 'href="?recipe=digits_mlp"' in page
    assert browser.get(reverse(NEW), {"job": "99"}).status_code == 404
    assert browser.get(reverse(NEW), {"job": "x"}).status_code == 404


def test_a_recipe_with_the_strategies_that_the_cluster_can_hold(browser: Client) -> None:
    url, values = form_of(browser, recipe="digits_mlp")
    assert "one_device" in values["use"]
    assert "multi_worker_mirrored" in values["use"]
    assert not {"tensor_parallel", "pipeline", "tpu"} & set(values["use"])
    values |= {"minutes": "0.5", "repeats": "1", "job.global_batch_size": "128", "samples": "12 800"}
    answer = browser.post(url, values)
    test = StrategyTest.objects.get()
    assert answer.headers["Location"] == reverse("strategy_test", args=[test.pk])
    assert (test.minutes, test.rounds, test.samples) == (0.5, 1, 12_800)
    assert [row.layout["strategy"] for row in test.candidates.all()] == list(map(str, values["use"]))
    assert all(row.spec["global_batch_size"] == 128 for row in test.candidates.all())


def test_a_jobs_settings_are_taken_over(browser: Client, member: User) -> None:
    asked = {"name": "mine", "cluster": Cluster.objects.get().name, "recipe": "digits_mlp"}
    asked |= {"strategy": "multi_worker_mirrored", "workers": 2, "global_batch_size": 64, "epochs": 7, "seed": 3}
    job = jobs.submit_job(request=asked | {"precision": "mixed_bfloat16", "params": {"units": 32}}, by=member)
    url, values = form_of(browser, job=job.pk)
    assert (values["name"], values["job.global_batch_size"], values["job.epochs"]) == ("mine", "64", "7")
    assert values["multi_worker_mirrored.workers"] == "2"
    assert browser.post(url, values | {"use": ["one_device", "multi_worker_mirrored"]}).status_code == 302
    specs = [row.typed_spec for row in StrategyTest.objects.get().candidates.all()]
    assert {(spec.seed, spec.precision, spec.epochs, spec.global_batch_size) for spec in specs} == {
        (3, "mixed_bfloat16", 7, 64)
    }
    assert [spec.workers for spec in specs] == [1, 2]


def test_errors_stand_at_their_fields(browser: Client) -> None:
    url, values = form_of(browser, recipe="digits_mlp")
    wrong = values | {"use": ["one_device", "multi_worker_mirrored"], "multi_worker_mirrored.workers": "two"}
    answer = browser.post(url, wrong | {"job.global_batch_size": "0"})
    assert answer.status_code == 422
    found = Fields(answer.content.decode())
    assert found.wrong == {"multi_worker_mirrored.workers", "job.global_batch_size"}
    assert found.values["multi_worker_mirrored.workers"] == "two"
    answer = browser.post(url, values | {"minutes": "soon", "samples": "-", "metric": "val_loss", "repeats": "11"})
    assert Fields(answer.content.decode()).wrong == {"minutes", "samples", "metric"}
    answer = browser.post(url, values | {"repeats": "11", "minutes": "0"})
    assert Fields(answer.content.decode()).wrong == {"repeats", "minutes"}
    assert "Candidates: 1 to 20 of them." in html_of(browser.post(url, values | {"use": []}))
    assert not StrategyTest.objects.exists()


def test_a_target_is_a_metric_with_its_value(browser: Client) -> None:
    url, values = form_of(browser, recipe="digits_mlp")
    browser.post(url, values | {"use": ["one_device"], "metric": "val_accuracy", "value": "0.9"})
    test = StrategyTest.objects.get()
    assert (test.target_metric, test.target_value) == ("val_accuracy", 0.9)


def test_who_may_look_only_asks_for_none(client_of: Browser, viewer: User) -> None:
    assert client_of(viewer).get(reverse(NEW)).status_code == 403
