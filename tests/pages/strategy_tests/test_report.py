"""The list of strategy tests and the report of one: what they show, what can be done there, what is taken away."""

from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.models import Job, Run, StrategyTest, User
from orchestrator.services.strategy_tests import creating, running
from tests.pages.html import html_of
from tests.services.gang.gangs import make_lab
from tests.services.strategy_tests.test_strategy_tests import NOW, asked, end_run, go_on
from worker_agent.protocol.states import Cause

Browser = Callable[[User], Client]


@pytest.fixture
def begun(member: User) -> StrategyTest:
    return go_on(creating.create(asked=asked(make_lab(), name="Which one?"), by=member))


@pytest.fixture
def browser(client_of: Browser, member: User) -> Client:
    return client_of(member)


def finish(test: StrategyTest) -> StrategyTest:
    for rate in (10.0, 4.0):
        end_run(rate, metrics={"val_accuracy": 0.75})
        test = go_on(test)
    return test


def page_of(browser: Client, test: StrategyTest, name: str = "strategy_test") -> str:
    answer = browser.get(reverse(name, args=[test.pk]))
    return html_of(answer)


def test_the_list_says_who_won_and_leads_to_the_report(browser: Client, begun: StrategyTest) -> None:
    finish(begun)
    page = html_of(browser.get(reverse("strategy_tests")))
    assert f'<a class="row-link" href="{reverse("strategy_test", args=[begun.pk])}" title="Which one?">' in page
    assert "One device is 2.50 × as fast as MultiWorkerMirrored, 2 workers" in page
    assert f'<a href="{reverse("strategy_tests")}" title="Strategy tests"' in page
    assert "These are all." in html_of(browser.get(reverse("strategy_tests"), {"before": begun.pk}))
    assert browser.get(reverse("strategy_tests"), {"before": "x"}).status_code == 200


def test_without_a_test_the_list_says_what_one_is(client_of: Browser, member: User, viewer: User) -> None:
    page = html_of(client_of(member).get(reverse("strategy_tests")))
    assert "No strategy test yet" in page
    assert reverse("strategy_test_new") in page
    assert reverse("strategy_test_new") not in html_of(client_of(viewer).get(reverse("strategy_tests")))


def test_while_it_runs_it_says_which_run_is_under_way(browser: Client, begun: StrategyTest) -> None:
    page, job = page_of(browser, begun), Job.objects.get()
    assert f'data-ids="{job.pk}" data-going-on' in page
    assert "0 of 2 runs done" in page
    assert f'Now run 1 of One device,<a href="{reverse("job", args=[job.pk])}">j-{job.pk}</a>' in page
    assert "Not decided yet." in page
    assert reverse("strategy_test_stop", args=[begun.pk]) in page
    end_run(10.0)
    go_on(begun)
    state = page_of(browser, begun, "strategy_test_state")
    assert state.startswith('<header class="ty-head" id="test-head"')
    assert "1 of 2 runs done" in state


def test_the_report_names_the_winner_with_its_reason_and_every_figure(browser: Client, begun: StrategyTest) -> None:
    test = finish(begun)
    page = page_of(browser, test)
    assert '<h2 id="h-verdict">One device is the fastest.</h2>' in page
    assert "MultiWorkerMirrored, 2 workers is 20 % as efficient as single devices" in page
    assert "1 280 ± 115" in page
    assert "Validation accuracy 0.7500" in page
    assert "Cannot win" in page
    assert "The best is 2.5 × as fast." in page
    assert "The first 20 % of a run&#x27;s steps are left out" in page
    assert '<th scope="row">Workers</th>' in page
    assert "data-going-on" not in page
    assert reverse("strategy_test_again", args=[test.pk]) in page


def test_a_candidate_that_failed_says_why(browser: Client, begun: StrategyTest) -> None:
    end_run(10.0, cause=Cause.OUT_OF_MEMORY, reason="Worker 0 ran out of memory.")
    page = page_of(browser, go_on(begun))
    assert 'title="Worker 0 ran out of memory."' in page


def test_curves_are_called_by_their_candidates(browser: Client, begun: StrategyTest) -> None:
    test = finish(begun)
    told = browser.get(reverse("strategy_test_curves", args=[test.pk])).json()["jobs"]
    assert [each["name"] for each in told] == ["One device", "MultiWorkerMirrored, 2 workers"]
    assert all(len(each["series"]["loss"]["steps"]) == 100 for each in told)


def test_the_file_needs_nothing_else(browser: Client, begun: StrategyTest) -> None:
    answer = browser.get(reverse("strategy_test_html", args=[finish(begun).pk]))
    text = b"".join(answer.streaming_content).decode()
    assert answer.headers["Content-Disposition"] == f'attachment; filename="t-{begun.pk}.html"'
    assert "One device is the fastest." in " ".join(text.split())
    assert not [word for word in ("href=", "src=", "url(", "<use", "<script", "@import") if word in text]
    table = browser.get(reverse("strategy_test_csv", args=[begun.pk]))
    assert b"".join(table.streaming_content).startswith(b"candidate,run,job")


def test_it_is_paused_resumed_stopped_run_again_and_deleted(browser: Client, begun: StrategyTest) -> None:
    def act(name: str) -> str:
        browser.post(reverse(f"strategy_test_{name}", args=[begun.pk]))
        return StrategyTest.objects.get(pk=begun.pk).status

    assert [act(name) for name in ("pause", "resume", "stop")] == ["paused", "running", "stopped"]
    page = html_of(browser.post(reverse("strategy_test_pause", args=[begun.pk]), follow=True))
    assert "Only a test that runs can be paused" in page
    end_run(1.0)
    running.advance(now=NOW)
    answer = browser.post(reverse("strategy_test_again", args=[begun.pk]))
    newer = StrategyTest.objects.latest("pk")
    assert (newer.name, answer.headers["Location"]) == ("Which one?", reverse("strategy_test", args=[newer.pk]))
    page = html_of(browser.post(reverse("strategy_test_delete", args=[begun.pk]), follow=True))
    assert f"t-{begun.pk} is deleted." in page
    assert not StrategyTest.objects.filter(pk=begun.pk).exists()


def test_a_candidate_is_added_or_its_field_says_why_not(browser: Client, begun: StrategyTest) -> None:
    url = reverse("strategy_test_extend", args=[begun.pk])
    answer = browser.post(url, {"strategy": "multi_worker_mirrored", "workers": "two", "ps": "1"})
    assert answer.status_code == 422
    assert 'id="f-workers" name="workers" aria-invalid="true"' in html_of(answer)
    assert browser.post(url, {"strategy": "mirrored", "devices_per_worker": "2", "ps": "1"}).status_code == 302
    assert begun.candidates.get(place=2).layout == {"strategy": "mirrored", "devices_per_worker": 2}
    answer = browser.post(url, {"strategy": "mirrored", "devices_per_worker": "2"})
    assert "The test has this candidate already." in html_of(answer)


def test_who_may_look_only_has_no_buttons(client_of: Browser, viewer: User, begun: StrategyTest) -> None:
    page = page_of(client_of(viewer), begun)
    assert "Which one?" in page
    assert 'form="act"' not in page
    assert "Add a candidate" not in page
    assert client_of(viewer).post(reverse("strategy_test_stop", args=[begun.pk])).status_code == 403
    assert client_of(viewer).get(reverse("strategy_test", args=[begun.pk + 1])).status_code == 404


def test_the_job_leads_back_to_its_test(browser: Client, begun: StrategyTest) -> None:
    job = Run.objects.get().job
    page = html_of(browser.get(reverse("job", args=[job.pk])))
    assert f'<a href="{reverse("strategy_test", args=[begun.pk])}">strategy test t-{begun.pk}</a>' in page
    assert f'href="{reverse("strategy_test_new")}?job={job.pk}"' in page
