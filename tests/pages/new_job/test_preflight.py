"""The form's check on the nodes: with and without scripts, its errors, its findings."""

import pytest
from django.test import Client

from orchestrator.models import Node, Preflight, User
from orchestrator.services.trials import preflights, probing
from tests.factories import make_job
from tests.pages.html import html_of
from tests.pages.new_job.test_new_job import cluster, filled, person
from worker_agent.protocol.findings import Finding
from worker_agent.protocol.reports import Probed

__all__ = ["cluster", "person"]
CHECK, JSON = "/jobs/new/check/", {"headers": {"accept": "application/json"}}


def answer(row: Preflight, **said: object) -> None:
    for node in Node.objects.filter(probes__preflight=row):
        report = Probed(node_id=node.pk, preflight_id=row.pk, **({"findings": []} | said))
        probing.on_probed(node=node, report=report, now=row.created_at)


def test_the_button_and_its_place_are_on_the_form(person: Client) -> None:
    page = person.get("/jobs/new/").content.decode()
    assert f'formaction="{CHECK}"' in page
    assert 'id="preflight-place"' in page


def test_without_scripts_it_is_a_page_that_loads_itself_until_it_is_done(person: Client) -> None:
    sent = person.post(CHECK, filled())
    row = Preflight.objects.get()
    assert (sent.status_code, sent["location"]) == (302, f"/checks/{row.pk}/")
    page = person.get(sent["location"]).content.decode()
    assert "Waiting for one, two" in page
    assert 'http-equiv="refresh"' in page
    answer(
        row, findings=[Finding("the disk <is> full", "0 MiB are free", "clean up", blocks=False)], facts={"Rows": "9"}
    )
    page = html_of(person.get(sent["location"]))
    assert 'http-equiv="refresh"' not in page
    assert "The disk &lt;is&gt; full." in page
    assert "The job can run, but read this first" in page
    assert "<dt>Rows</dt><dd>9</dd>" in page


def test_with_scripts_it_is_a_part_of_the_form(person: Client) -> None:
    url = person.post(CHECK, filled(), **JSON).json()["url"]
    assert 'data-state="running"' in person.get(url).content.decode()
    answer(Preflight.objects.get())
    part = person.get(url).content.decode()
    assert 'data-state="done"' in part
    assert "The job can run on one, two" in part
    assert "<html" not in part


def test_it_can_be_cancelled_while_it_runs(person: Client) -> None:
    person.post(CHECK, filled())
    row = Preflight.objects.get()
    cancel = f"/checks/{row.pk}/cancel/"
    assert f'formaction="{cancel}"' in person.get(f"/checks/{row.pk}/").content.decode()
    gone = person.post(cancel)
    assert (gone.status_code, gone["location"]) == (302, "/jobs/new/")
    assert "The check is cancelled." in person.get(gone["location"]).content.decode()
    assert not Preflight.objects.exists()
    assert person.post(cancel).status_code == 404
    person.post(CHECK, filled())
    assert person.post(f"/checks/{Preflight.objects.get().pk}/cancel/", **JSON).status_code == 204


def test_one_that_a_job_waits_for_is_not_cancelled(person: Client) -> None:
    job = make_job()
    person.post(CHECK, filled())
    row = Preflight.objects.get()
    Preflight.objects.update(job=job)
    page = person.post(f"/checks/{row.pk}/cancel/", follow=True).content.decode()
    assert f"j-{job.pk} waits for this check: stop the job, and it ends." in page


def test_what_is_wrong_with_the_form_comes_first(person: Client) -> None:
    sent = person.post(CHECK, filled(workers="99"), **JSON)
    assert "workers" in sent.json()["errors"]
    page = person.post(CHECK, filled(workers="99"))
    assert page.status_code == 422
    assert "Nothing was started." in page.content.decode()
    assert not Preflight.objects.exists()


def test_more_than_a_few_at_once_are_refused_in_words(person: Client) -> None:
    for _ in range(preflights.AT_ONCE_MAX):
        person.post(CHECK, filled())
    assert "are running" in person.post(CHECK, filled(), **JSON).json()["errors"][""]


@pytest.mark.parametrize("path", ["", "state/"])
def test_only_its_owner_and_administrators_see_it(
    person: Client, teammate: User, viewer: User, administrator: User, client_of, path: str
) -> None:
    person.post(CHECK, filled())
    url = f"/checks/{Preflight.objects.get().pk}/{path}"
    assert client_of(administrator).get(url).status_code == 200
    assert client_of(teammate).get(url).status_code == 404
    assert client_of(viewer).get(url).status_code == 404
    assert client_of(viewer).post(CHECK, filled()).status_code == 403
    assert Client().get(url).status_code == 302
