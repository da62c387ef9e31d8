"""The new-job page: every way a program comes in, each field's error, and that nothing typed is lost."""

import io
import re
import zipfile
from html import unescape

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from orchestrator import catalogue
from orchestrator.models import Cluster, Code, Job, User
from orchestrator.services.nodes import expected
from orchestrator.services.programs import programs
from tests.factories import RECIPE, make_cluster, make_job, make_node
from tests.pages.fields import Fields
from worker_agent.protocol.states import JobStatus

URL, PREVIEW = "/jobs/new/", "/jobs/new/preview/"


@pytest.fixture
def cluster(db: None) -> Cluster:
    place = make_cluster("yard")
    make_node(place, "one")
    make_node(place, "two")
    return place


@pytest.fixture
def person(member: User, client_of, cluster: Cluster) -> Client:
    return client_of(member)


def filled(**changes: object) -> dict[str, object]:
    """A form that makes a job, with some fields changed."""
    values: dict[str, object] = {
        "name": "first",
        "cluster": "yard",
        "source": "recipe",
        "recipe": "digits_cnn",
        "strategy": "multi_worker_mirrored",
        "workers": "2",
        "devices_per_worker": "1",
        "global_batch_size": "64",
        "epochs": "3",
        "learning_rate": "0.001",
        "lr_scaling": "linear",
        "warmup_epochs": "1",
        "seed": "7",
        "env": "A=1\nB = two words ",
        "priority": "5",
        "time_limit": "1.5",
        "param-filters": "8",
    }
    return values | changes


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """Which nodes were told to expect a job, each time."""
    found: list[set[str]] = []
    monkeypatch.setattr(expected, "expect", lambda *, node_ids, **_: found.append(set(node_ids)))
    return found


def test_who_opens_the_form_or_changes_it_has_its_nodes_expect_the_job(
    person: Client, cluster: Cluster, told: list[set[str]]
) -> None:
    person.get(URL, {"recipe": "digits_cnn"})
    assert told[-1] <= set(cluster.nodes.values_list("pk", flat=True))
    assert told[-1]
    person.post(PREVIEW, filled(workers="2"))
    assert told[-1] == set(cluster.nodes.values_list("pk", flat=True))
    person.post(PREVIEW, filled(workers="2000"))
    assert not told[2:] or not told[-1]


def test_a_viewer_who_may_start_nothing_wakes_no_node(
    viewer: User, client_of, cluster: Cluster, told: list[set[str]]
) -> None:
    client_of(viewer).post(PREVIEW, filled())
    assert not told


def test_the_form_opens_with_the_fields_of_a_recipe(person: Client):
    page = person.get(URL, {"recipe": "digits_cnn"})
    fields = Fields(page.content.decode())
    assert page.status_code == 200
    assert fields.values["recipe"] == "digits_cnn"
    assert fields.values["param-filters"] == str(_default("digits_cnn", "filters"))
    assert fields.values["cluster"] == "yard"


def test_each_field_stands_on_the_page_once(person: Client):
    found = re.findall(r'\bid="(f-[^"]+)"', person.get(URL).content.decode())
    assert len(found) == len(set(found)) > 60


def test_a_filled_form_makes_the_job_it_describes(person: Client, member: User):
    answer = person.post(URL, filled())
    job = Job.objects.get()
    assert answer.status_code == 302
    assert answer["Location"] == f"/jobs/{job.pk}/"
    spec = job.typed_spec
    assert (job.owner, job.name, job.recipe) == (member, "first", "digits_cnn")
    assert (spec.workers, spec.global_batch_size, spec.epochs, spec.seed, spec.priority) == (2, 64, 3, 7, 5)
    assert (spec.learning_rate, spec.lr_scaling, spec.warmup_epochs) == (0.001, "linear", 1.0)
    assert spec.env == {"A": "1", "B": "two words"}
    assert spec.time_limit_s == 90
    assert spec.params["filters"] == 8


@pytest.mark.parametrize(
    ("strategy", "sizes"),
    [
        ("one_device", (1, 0, 1)),
        ("mirrored", (1, 0, 2)),
        ("multi_worker_mirrored", (2, 0, 1)),
        ("parameter_server", (2, 1, 2)),
    ],
)
def test_sizes_that_a_strategy_does_not_use_are_ignored(person: Client, strategy: str, sizes: tuple[int, int, int]):
    devices = "1" if strategy == "multi_worker_mirrored" else "2"
    person.post(URL, filled(strategy=strategy, workers="2", ps="1", devices_per_worker=devices))
    spec = Job.objects.get().typed_spec
    assert (spec.workers, spec.ps, spec.devices_per_worker) == sizes


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("name", "", "Name: give the job a name."),
        ("cluster", "elsewhere", "no cluster of that name"),
        ("workers", "two", "whole number"),
        ("workers", "9", "Use at most 4"),
        ("devices_per_worker", "3", "one device per worker"),
        ("global_batch_size", "63", "does not divide"),
        ("epochs", "0", "from 1 to"),
        ("learning_rate", "nan", "number"),
        ("warmup_epochs", "9", "from 0 to 3"),
        ("seed", "-1", "from 0 to"),
        ("priority", "999", "from -100 to 100"),
        ("time_limit", "soon", "minutes"),
        ("time_limit", "999999", "43 200"),
        ("env", "JUST_A_NAME", "Line 1 is not of the form NAME=value"),
        ("env", "A=1\nA=2", "Line 2 sets A a second time"),
        ("env", "TF_CONFIG=x", "set by Trainyard itself"),
        ("param-filters", "many", "whole number"),
        ("recipe", "nothing", "no recipe of that name"),
    ],
)
def test_each_error_stands_at_its_field_and_nothing_is_lost(person: Client, field: str, value: str, words: str):
    sent = filled(**{field: value})
    answer = person.post(URL, sent)
    text = answer.content.decode()
    fields = Fields(text)
    assert answer.status_code == 422
    assert words in unescape(text)
    assert field in fields.wrong
    assert fields.described[field] == f"f-{field}-e"
    kept = {name for name in sent if not name.startswith("param-") or name == field or field != "recipe"}
    shown = {name: fields.values.get(name) for name in kept}
    expected = {name: sent[name] for name in kept}
    if field in ("cluster", "recipe"):
        shown.pop(field), expected.pop(field)
    assert shown == expected
    assert not Job.objects.exists()


@pytest.mark.parametrize(("url", "status"), [(URL, 302), (PREVIEW, 200)])
def test_the_program_of_a_form_is_read_once(person: Client, monkeypatch, url: str, status: int):
    seen = []
    resolve = programs.resolve
    monkeypatch.setattr(programs, "resolve", lambda *given, **more: seen.append(given) or resolve(*given, **more))
    assert person.post(url, filled()).status_code == status
    assert len(seen) == 1


def test_all_errors_come_at_once(person: Client):
    fields = Fields(person.post(URL, filled(name="", epochs="x", env="A")).content.decode())
    assert {"name", "epochs", "env"} <= fields.wrong


def test_what_is_typed_is_never_html(person: Client):
    evil = '"><script>alert(1)</script>'
    text = person.post(URL, filled(name=evil, env=evil, epochs=evil, cluster=evil)).content.decode()
    assert "<script>alert" not in text
    assert Fields(text).values["name"] == evil
    preview = person.post(PREVIEW, filled(name=evil, epochs=evil, source="text", text=f"'''{evil}", filename="a.py"))
    assert "<script>alert" not in preview.json()["panel"] + preview.json()["program"]


def test_edited_text_starts_from_a_recipe_and_makes_the_job(person: Client):
    opened = Fields(person.post(URL, filled(do="edit")).content.decode())
    assert opened.values["source"] == "text"
    assert opened.values["text"] == catalogue.entry("digits_cnn").text
    assert (opened.values["name"], opened.values["param-filters"]) == ("first", "8")
    changed = opened.values["text"].replace("\n", "\r\n") + "\r\n# mine\r\n"
    person.post(URL, filled(source="text", text=changed, filename="mine.py"))
    job = Job.objects.get()
    assert bytes(job.code.content).decode().endswith("\n# mine\n")
    assert "\r" not in bytes(job.code.content).decode()
    assert (job.recipe, job.code.filename) == ("", "mine.py")


def test_a_program_that_does_not_parse_says_the_line(person: Client):
    answer = person.post(URL, filled(source="text", text="def build_model(:\n", filename="mine.py"))
    assert answer.status_code == 422
    assert "mine.py, line 1: syntax error" in answer.content.decode()
    assert Fields(answer.content.decode()).values["text"] == "def build_model(:\n"


def upload(content: bytes = RECIPE, name: str = "tiny.py") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, content)


def test_the_page_knows_how_large_a_file_may_be(person: Client, settings):
    settings.MAX_CODE_BYTES = 1_234_567
    assert 'data-max-bytes="1234567"' in person.get(URL).content.decode()


def test_an_upload_is_kept_when_something_else_is_wrong(person: Client):
    refused = person.post(URL, filled(source="upload", upload=upload(), epochs="x", **{"param-units": "3"}))
    fields = Fields(refused.content.decode())
    assert refused.status_code == 422
    assert Code.objects.get().sha256 == fields.values["kept"]
    assert "tiny.py is uploaded" in refused.content.decode()
    again = filled(source="upload", kept=fields.values["kept"], kept_name="tiny.py", **{"param-units": "3"})
    assert person.post(URL, again).status_code == 302
    job = Job.objects.get()
    assert bytes(job.code.content) == RECIPE
    assert job.spec["params"] == {"units": 3}


def test_an_archive_is_taken(person: Client):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("recipe.py", RECIPE)
        archive.writestr("helpers/more.py", "X = 1\n")
    person.post(URL, filled(source="upload", upload=upload(packed.getvalue(), "mine.zip")))
    job = Job.objects.get()
    assert job.code.archive
    cloned = Fields(person.get(URL, {"clone": job.pk}).content.decode())
    again = filled(source=cloned.values["source"], kept=cloned.values["kept"], kept_name=cloned.values["kept_name"])
    assert person.post(URL, again).status_code == 302
    assert Job.objects.latest("pk").code == job.code


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (None, "File: choose a .py or .zip file."),
        (upload(b"x = (", "broken.py"), "broken.py, line 1: syntax error"),
        (upload(b"x = 1\n", "empty.py"), "build_model(params)"),
        (upload(b"PK", "bad.zip"), "The archive cannot be unpacked"),
        (upload(RECIPE, "tiny.exe"), "only .py and .zip"),
        (upload(b"\xff\xfe", "raw.py"), "not UTF-8"),
    ],
)
def test_bad_uploads_are_answered_at_the_file(person: Client, file: SimpleUploadedFile | None, words: str):
    sent = filled(source="upload", **({"upload": file} if file else {}))
    if file:
        file.seek(0)
    answer = person.post(URL, sent)
    assert answer.status_code == 422
    assert words in unescape(answer.content.decode())
    assert "upload" in Fields(answer.content.decode()).wrong
    assert not Code.objects.exists()


def test_a_digest_of_nothing_is_answered(person: Client):
    answer = person.post(URL, filled(source="upload", kept="0" * 64))
    assert answer.status_code == 422
    assert "upload it" in answer.content.decode()


def test_a_change_of_recipe_brings_that_recipe_s_fields(person: Client):
    sent = filled(recipe="digits_mlp", params_of="recipe digits_cnn", **{"param-lr": "0.5"})
    fields = Fields(person.post(PREVIEW, sent).json()["program"])
    declared = catalogue.entry("digits_mlp").info.params
    assert {f"param-{param.name}" for param in declared} <= set(fields.values)
    assert fields.values["param-lr"] == str(_default("digits_mlp", "lr"))
    assert fields.values["params_of"] == "recipe digits_mlp"


def test_the_form_opens_with_a_cluster_that_has_ready_nodes(person: Client):
    make_cluster("empty")
    assert Fields(person.get(URL).content.decode()).values["cluster"] == "yard"
    assert Fields(person.get(URL).content.decode()).values["recipe"] == "digits_cnn"


def test_the_preview_shows_arithmetic_placement_and_configuration(person: Client):
    answer = person.post(PREVIEW, filled()).json()
    panel = unescape(answer["panel"])
    assert answer["errors"] == {}
    assert "2 devices on 2 nodes, starts at once." in panel
    assert "32 per step" in panel
    assert "0.001 × 2 = 0.002" in panel
    assert panel.count('data-tf-of="worker:') == 2
    assert "The ports are examples. The real ones are chosen at launch." in panel
    assert '"index": 1' in panel
    assert not Job.objects.exists()


def test_the_preview_offers_the_nearest_sizes(person: Client):
    answer = person.post(PREVIEW, filled(global_batch_size="63")).json()
    assert "does not divide" in answer["errors"]["global_batch_size"]
    assert 'data-use-batch="62"' in answer["panel"]
    assert 'data-use-batch="64"' in answer["panel"]


def test_the_preview_says_what_a_job_would_wait_for(person: Client, cluster: Cluster):
    cluster.nodes.filter(name="two").update(state="cordoned")
    cluster.nodes.filter(name="one").update(state="cordoned")
    panel = person.post(PREVIEW, filled()).json()["panel"]
    assert "Has to wait: needs 2 workers" in panel
    assert "cordoned" in panel


def test_the_preview_stores_a_sound_upload_once(person: Client):
    first = Fields(person.post(PREVIEW, filled(source="upload", upload=upload())).json()["program"])
    assert first.values["kept"] == Code.objects.get().sha256
    again = person.post(PREVIEW, filled(source="upload", kept=first.values["kept"], kept_name="tiny.py")).json()
    assert "upload" not in again["errors"]
    assert "param-units" in Fields(again["program"]).values


def test_fields_of_a_program_that_is_broken_for_a_moment_keep_what_was_typed(person: Client):
    broken = person.post(PREVIEW, filled(source="text", text="def", filename="a.py", **{"param-units": "5"})).json()
    assert Fields(broken["program"]).values["param-units"] == "5"
    mended = person.post(
        PREVIEW, filled(source="text", text=RECIPE.decode(), filename="a.py", **{"param-units": "5"})
    ).json()
    assert Fields(mended["program"]).values["param-units"] == "5"


def test_a_clone_starts_with_everything_of_the_job(person: Client, member: User):
    person.post(URL, filled())
    job = Job.objects.get()
    fields = Fields(person.get(URL, {"clone": job.pk}).content.decode())
    for name, value in filled(env="A=1\nB=two words").items():
        assert fields.values[name] == value, name


def test_a_clone_of_an_upload_keeps_the_program(person: Client):
    person.post(URL, filled(source="upload", upload=upload()))
    job = Job.objects.get()
    fields = Fields(person.get(URL, {"clone": job.pk}).content.decode())
    assert fields.values["source"] == "text"
    assert fields.values["text"].encode() == RECIPE


@pytest.mark.parametrize("wanted", ["999", "x", "-1", "9" * 40])
def test_a_clone_of_nothing_is_404(person: Client, wanted: str):
    assert person.get(URL, {"clone": wanted}).status_code == 404


def test_everybody_may_clone_what_they_see(client_of, teammate: User, cluster: Cluster):
    job = make_job(cluster=cluster, status=JobStatus.SUCCEEDED)
    assert client_of(teammate).get(URL, {"clone": job.pk}).status_code == 200


def test_viewers_may_not(client_of, viewer: User, cluster: Cluster):
    person = client_of(viewer)
    for answer in (person.get(URL), person.post(URL, filled()), person.post(PREVIEW, filled())):
        assert answer.status_code == 403
    assert not Job.objects.exists()


def test_strangers_are_sent_to_the_sign_in(client: Client, db: None):
    assert client.get(URL)["Location"] == f"/sign-in/?next={URL}"
    assert client.post(PREVIEW, filled(), headers={"sec-fetch-mode": "cors"}).status_code == 401


def test_the_preview_is_asked_by_post_only(person: Client):
    assert person.get(PREVIEW).status_code == 405


def test_without_csrf_token_nothing_starts(member: User, cluster: Cluster):
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(member, backend="django.contrib.auth.backends.ModelBackend")
    assert strict.post(URL, filled()).status_code == 403
    assert not Job.objects.exists()


def test_without_any_cluster_the_form_says_so(client_of, member: User):
    answer = client_of(member).post(URL, filled())
    assert answer.status_code == 422
    assert "no cluster is registered yet" in answer.content.decode().lower()


def _default(recipe: str, name: str) -> object:
    entry = catalogue.entry(recipe)
    assert entry is not None
    return next(param.default for param in entry.info.params if param.name == name)
