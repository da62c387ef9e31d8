"""What a person needs to start a job: all errors in one list, what is set in folded parts, a sample, a copy."""

import re
from datetime import UTC, datetime
from html import unescape

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.models import Checkpoint, Cluster, Job, Node, User
from tests.factories import make_cluster, make_node, make_replica
from tests.pages.fields import Fields
from tests.pages.html import html_of
from tests.pages.new_job.test_new_job import PREVIEW, URL, filled
from worker_agent.protocol.codec import plain
from worker_agent.protocol.ending import Ending
from worker_agent.protocol.states import Cause, JobStatus, ReplicaStatus


@pytest.fixture
def cluster(db: None) -> Cluster:
    place = make_cluster("yard")
    make_node(place, "one")
    make_node(place, "two")
    return place


@pytest.fixture
def person(member: User, client_of, cluster: Cluster) -> Client:
    return client_of(member)


def test_a_new_form_lists_what_is_missing_and_has_start_beside_it(person: Client) -> None:
    page = html_of(person.get(URL))
    assert '<a href="#f-name" data-error="name">Name: give the job a name.</a>' in page
    assert 'aria-invalid="true"' not in page, "nothing is held against somebody who has not typed yet"
    aside = page[page.index("<aside") :]
    assert aside.index('form="new-job" id="start"') < aside.index("data-error")


def test_the_preview_lists_every_error_with_its_field_before_the_form_is_sent(person: Client) -> None:
    env = "A=1\nno line\nA=2\nTF_CONFIG=x\n1B=2"
    answer = person.post(PREVIEW, filled(strategy="mirrored", devices_per_worker="0", name="", env=env)).json()
    assert answer["errors"]["devices_per_worker"] == "Devices per worker: a whole number from 1 to 64, not 0."
    listed = unescape(answer["error_list"])
    for words in ("Devices per worker: a whole number from 1 to 64, not 0.", "Name: give the job a name."):
        assert f">{words}</a>" in listed
    for words in ("Line 2 is not of", "Line 3 sets A a second", "TF_CONFIG is set by", "'1B' is not a variable name"):
        assert words in answer["errors"]["env"], "all of them at once"


def test_rest_says_the_same(person: Client) -> None:
    asked = {"name": "x", "cluster": "yard", "recipe": "digits_mlp", "strategy": "mirrored", "devices_per_worker": 0}
    answer = person.post("/api/v1/jobs", asked, content_type="application/json").json()
    assert answer["errors"] == [{"field": "devices_per_worker", "message": "a whole number from 1 to 64, not 0"}]
    assert answer["detail"] == "devices_per_worker: a whole number from 1 to 64, not 0"


def test_json_that_is_nested_too_deeply_is_said_in_words(person: Client) -> None:
    deep = "[" * 100_000
    answer = person.post("/api/v1/jobs", deep, content_type="application/json").json()
    assert "nested too deeply" in answer["detail"]
    assert "recursion" not in answer["detail"]
    sent = filled(kind="script", source="text", text="print(1)\n", tf_config=deep)
    told = person.post(PREVIEW, sent).json()["errors"]["tf_config"]
    assert told.startswith("TF_CONFIG: TF_CONFIG is nested too deeply")


def test_each_folded_part_says_what_is_set_in_it(person: Client) -> None:
    folds = person.post(PREVIEW, filled(precision="mixed_bfloat16", max_restarts="2")).json()["folds"]
    learning = "Global batch size 64 \u00b7 Epochs 3 \u00b7 Learning rate 0.001 \u00b7 Learning rate scaling Linear"
    assert folds["Batch and learning"].startswith(learning)
    assert folds["Accumulation, precision, compilation"].startswith("Precision mixed bfloat16")
    assert folds["Priority, limits, environment"].startswith("Priority 5 \u00b7 Time limit 1.5 minutes")
    assert folds["After a failure"] == "Restarts after failures 2 times"
    assert folds["Communication and roles"] == "Defaults"
    assert "filters 8" in folds["Hyper-parameters"]


@pytest.mark.parametrize("strategy", ["one_device", "mirrored", "multi_worker_mirrored", "pipeline"])
def test_a_sample_is_a_script_that_can_be_started_as_it_is(person: Client, strategy: str) -> None:
    opened = Fields(person.post(URL, filled(do="sample", name="", strategy=strategy, workers="2")).content.decode())
    assert "model.fit(" in opened.values["text"]
    assert (opened.values["kind"], opened.values["source"]) == ("script", "text")
    assert opened.wrong == set()
    assert person.post(URL, opened.values).status_code == 302
    assert Job.objects.get().strategy == ("one_device" if strategy == "pipeline" else strategy)


@pytest.mark.parametrize(("tpu", "tone"), [("", "red"), ("local", "red"), ("my-tpu", "amber")])
def test_a_tpu_that_no_node_has_is_not_placed_in_green(person: Client, tpu: str, tone: str) -> None:
    for node in Node.objects.all():
        node.inventory["tpus"] = 0
        node.save()
    panel = unescape(person.post(PREVIEW, filled(strategy="tpu", tpu=tpu, lr_scaling="none")).json()["panel"])
    said = panel[panel.index("data-place-say") :].partition("</p>")[0]
    assert f'data-tone="{tone}"' in said
    assert ("Cannot be placed with these settings." if tone == "red" else "Whether the TPU my-tpu") in said


def test_both_learning_rates_are_explained(person: Client) -> None:
    page = unescape(html_of(person.get(URL)))
    assert "Learning rate, if given, replaces it." in page
    assert "If empty, the program's own: a recipe's lr, for instance." in page


def test_a_copy_says_what_was_copied_and_asks_for_more_epochs_where_all_are_done(person: Client, member: User) -> None:
    person.post(URL, filled())
    job = Job.objects.get()
    page = html_of(person.get(URL, {"clone": job.pk}))
    assert f'A copy of<a href="/jobs/{job.pk}/">first</a>(j-{job.pk})' in page
    assert "Its program and all its settings are filled in." in page
    row = dict(job=job, attempt=1, name="step-00000009", step=9, epoch=3, size_bytes=1, sha256="0" * 64, usable=True)
    last = Checkpoint.objects.create(**row, created_at=datetime.now(UTC))
    opened = person.get(URL, {"clone": job.pk, "resume_from": last.pk}).content.decode()
    assert Fields(opened).values["epochs"] == "6"
    assert "That has all 3 epochs, so Epochs is 6 here: 3 more." in opened
    assert "epochs" not in person.post(PREVIEW, Fields(opened).values).json()["errors"]


@pytest.mark.parametrize(("module", "lines"), [("sklearn", "scikit-learn"), ("mine", "mine")])
def test_a_missing_package_leads_to_its_field(person: Client, module: str, lines: str) -> None:
    text = f"import {module}\n"
    person.post(URL, filled(kind="script", source="text", text=text, filename="a.py", strategy="one_device"))
    failed = {"status": JobStatus.FAILED, "cause": Cause.EXCEPTION, "reason": "worker 0 on one failed: No module."}
    Job.objects.update(attempt=1, **failed)
    job = Job.objects.get()
    ending = Ending(cause=Cause.EXCEPTION, exception="ModuleNotFoundError", missing=module)
    columns = {"ended_at": datetime.now(UTC), "cause": "exception", "ending": plain(ending)}
    make_replica(job, status=ReplicaStatus.EXITED, **columns)
    page = html_of(person.get(reverse("job", args=[job.pk])))
    assert "to Packages." in page
    assert "Read the traceback" not in page
    assert page.count("No module.") == 1
    edit = f'<a class="btn btn-ink" href="{URL}?clone={job.pk}&amp;missing={module}#f-requirements">'
    assert page.index(edit) < page.index("Run again")
    opened = person.get(URL, {"clone": job.pk, "missing": module}).content.decode()
    assert Fields(opened).values["requirements"] == lines
    assert f"{lines} was added to Packages." in opened
    assert ("That is a guess" in opened) == (module == "mine")
    other = person.get(URL, {"clone": job.pk, "missing": "harmful"}).content.decode()
    assert Fields(other).values["requirements"] == ""


def test_enter_in_a_field_starts_nothing(person: Client) -> None:
    """A browser presses the first button of a form, and none where that one is disabled."""
    page = html_of(person.get(URL))
    buttons = re.findall(r'<button(?=[^>]*type="submit")[^>]*>', page)
    first = next(each for each in buttons if 'form="new-job"' in each)
    assert "disabled" in first
    assert page.index(first) < page.index('<form class="ty-form" id="new-job"')


def test_an_error_stands_beside_start_and_at_its_field_and_not_in_the_panel_again(person: Client) -> None:
    answers = [
        person.post(PREVIEW, filled(**wrong)).json()
        for wrong in ({"global_batch_size": "63"}, {"workers": "3"}, {"source": "text", "text": ""})
    ]
    for answer in answers:
        assert answer["errors"]
        for sentence in answer["errors"].values():
            assert sentence in unescape(answer["error_list"])
            assert sentence not in unescape(answer["panel"])
        assert f"{len(answer['errors'])} to correct before it can start" in answer["error_list"]


@pytest.mark.parametrize("text", ["", "def build_model(:"])
def test_a_program_that_cannot_start_has_no_green_place(person: Client, text: str) -> None:
    panel = person.post(PREVIEW, filled(kind="script", source="text", text=text)).json()["panel"]
    assert "starts at once" not in panel
    assert 'data-tone="green"' not in panel
