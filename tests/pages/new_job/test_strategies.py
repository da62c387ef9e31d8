"""The new-job page: what each strategy lets one choose, scripts, and a hand-written TF_CONFIG."""

from html import unescape

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from dashboard.forms import label_of
from dashboard.labels import in_labels
from orchestrator.models import Cluster, Job, User
from tests.factories import RECIPE, make_cluster, make_node
from tests.pages.fields import Fields
from tests.pages.html import html_of
from tests.pages.new_job.test_new_job import PREVIEW, URL, filled
from worker_agent.protocol.job.job_spec import FIELDS


@pytest.fixture
def person(member: User, client_of, db: None) -> Client:
    place: Cluster = make_cluster("yard")
    make_node(place, "one")
    make_node(place, "two")
    return client_of(member)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("accumulation", "0", "from 1 to"),
        ("communication", "nccl", "NCCL needs GPUs"),
        ("precision", "float8", "float32, mixed_float16"),
        ("checkpoints_kept", "many", "whole number"),
        ("steps_per_execution", "-1", "from 0"),
    ],
)
def test_an_error_in_a_folded_part_unfolds_it(person: Client, field: str, value: str, words: str):
    text = html_of(person.post(URL, filled(**{field: value})))
    assert field in Fields(text).wrong
    assert words in unescape(text)
    before = text[: text.index(f'name="{field}"')]
    assert before.rindex(" open><summary>") > before.rindex("<details") > 0
    assert f'<a href="#f-{field}" data-error="{field}">{label_of(field)}: ' in text
    assert html_of(person.get(URL)).count(" open><summary>") == 0


def test_a_validation_that_needs_checkpoints_says_so(person: Client):
    fields = Fields(person.post(URL, filled(validation="evaluator", checkpoints_kept="0")).content.decode())
    assert "validation" in fields.wrong


def test_a_sentence_calls_fields_and_values_what_the_page_calls_them(person: Client):
    text = unescape(person.post(URL, filled(validation="evaluator", checkpoints_kept="0")).content.decode())
    assert "set Checkpoints kept to 1 or more, or Validation to By the gang, after each epoch." in text
    for row in FIELDS.values():
        assert f">{row.label}</" in text, row.name
        for option in row.options:
            assert f">{in_labels(f'`{option}`')}</" in text, option


def test_a_file_to_run_that_is_not_the_program_is_said_at_its_field(person: Client):
    sent = filled(kind="script", source="upload", entry="other.py")
    answer = person.post(URL, sent | {"upload": SimpleUploadedFile("main.py", b"print(1)\n")})
    assert answer.status_code == 422
    assert "File to run: the program is one file, main.py: leave this out, or name that file." in unescape(
        answer.content.decode()
    )
    assert "entry" in Fields(answer.content.decode()).wrong


def test_every_field_of_a_strategy_reaches_its_job_and_its_clone(person: Client):
    sent = filled(
        chief="on",
        communication="ring",
        validation="evaluator",
        accumulation="2",
        precision="mixed_bfloat16",
        steps_per_execution="5",
        sharding="data",
        jit="on",
        lr_scaling="sqrt",
        checkpoint_steps="10",
        checkpoints_kept="2",
        cross_device="nccl",
        micro_batches="9",
    )
    assert person.post(URL, sent).status_code == 302
    job = Job.objects.get()
    spec = job.typed_spec
    assert (spec.chief, spec.communication, spec.validation, spec.jit) == (True, "ring", "evaluator", True)
    assert (spec.accumulation, spec.precision, spec.steps_per_execution) == (2, "mixed_bfloat16", 5)
    assert (spec.sharding, spec.lr_scaling, spec.checkpoint_steps, spec.checkpoints_kept) == ("data", "sqrt", 10, 2)
    assert (spec.cross_device, spec.micro_batches) == ("auto", 4)
    cloned = Fields(person.get(URL, {"clone": job.pk}).content.decode())
    for name in set(sent) - {"cross_device", "micro_batches", "env"}:
        assert cloned.values[name] == sent[name], name


def test_a_script_is_sent_with_what_scripts_have_and_nothing_else(person: Client):
    sent = filled(
        kind="script",
        source="text",
        text="import tensorflow as tf\n",
        filename="main.py",
        arguments="--name 'two words' -v",
        working_dir="src",
        keras="tf_keras",
        requirements="einops==0.8.1",
        accumulation="7",
        epochs="junk",
    )
    assert person.post(URL, sent).status_code == 302
    job = Job.objects.get()
    spec = job.typed_spec
    assert (spec.kind, spec.keras) == ("script", "tf_keras")
    assert spec.arguments == ["--name", "two words", "-v"]
    assert (spec.working_dir, spec.requirements, spec.accumulation, spec.params) == ("src", "einops==0.8.1", 1, {})
    assert (spec.epochs, job.epochs) == (5, 0)
    cloned = Fields(person.get(URL, {"clone": job.pk}).content.decode())
    for name in ("kind", "source", "arguments", "working_dir", "keras", "requirements", "text"):
        assert cloned.values[name] == sent[name], name


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("arguments", "'open", "quotation mark"),
        ("working_dir", "/etc", "no leading /"),
        ("requirements", "--pre x", "options, addresses"),
        ("tf_config", "{", "not JSON"),
        ("keras", "keras2", "keras3, tf_keras"),
        ("text", "x = (", "syntax error"),
    ],
)
def test_what_is_wrong_with_a_script_stands_at_its_field(person: Client, field: str, value: str, words: str):
    sent = filled(kind="script", source="text", text="print(1)\n", filename="main.py") | {field: value}
    answer = person.post(URL, sent)
    assert answer.status_code == 422
    assert words in unescape(answer.content.decode())
    fields = Fields(answer.content.decode())
    assert field in fields.wrong
    assert field == "keras" or fields.values[field] == value


def test_the_catalogue_is_not_for_scripts(person: Client):
    fields = Fields(person.post(URL, filled(kind="script")).content.decode())
    assert (fields.values["source"], fields.wrong & {"upload", "recipe"}) == ("upload", {"upload"})


def test_the_traps_of_a_hand_written_tf_config_stand_in_the_panel(person: Client):
    config = '{"cluster": {"worker": ["10.0.0.1:20000"], "evaluator": ["10.0.0.2:20000"]}, "task": {}}'
    sent = filled(kind="script", source="text", text="print(1)\n", filename="main.py", tf_config=config)
    answer = person.post(PREVIEW, sent).json()
    panel = unescape(answer["panel"])
    assert "The evaluator is in the cluster." in panel
    assert "TF_CONFIG contains a task." in panel
    assert "Set validation to evaluator" in panel or "set validation to evaluator" in panel
    assert "The program sets its batch size" in panel


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"accumulation": "4"}, ("8", "per pass of a replica", "passes")),
        ({"lr_scaling": "sqrt"}, ("0.001 × √2 = 0.00141421",)),
        ({"strategy": "parameter_server"}, ("examples per update", "workers, each on its own")),
        ({"validation": "evaluator"}, ("evaluator 0",)),
        ({"chief": "on"}, ("chief 0", '"chief": [')),
    ],
)
def test_the_panel_says_what_each_choice_makes(person: Client, changes: dict[str, str], words: tuple[str, ...]):
    panel = unescape(person.post(PREVIEW, filled(**changes)).json()["panel"])
    for word in words:
        assert word in panel


def test_the_panel_proposes_a_keras_and_says_who_runs_a_script(person: Client):
    sent = filled(kind="script", source="text", text="import tensorflow as tf\n", filename="main.py")
    panel = unescape(person.post(PREVIEW, sent | {"strategy": "parameter_server"}).json()["panel"])
    assert "Automatic: tf_keras (Keras 2)" in panel
    assert "the chief; the others are its servers" in panel
    assert "The program names no strategy." in panel
    sent |= {"text": "s = tf.distribute.MirroredStrategy()", "strategy": "mirrored", "devices_per_worker": "2"}
    assert "2, one on each device that the program sees" in unescape(person.post(PREVIEW, sent).json()["panel"])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"strategy": "tensor_parallel", "devices_per_worker": "2"}, ("32", "groups of devices")),
        ({"strategy": "central_storage", "devices_per_worker": "2"}, ("64 per step",)),
        ({"strategy": "tpu", "tpu": "local", "lr_scaling": "none"}, ("examples, over the cores of the TPU",)),
    ],
)
def test_the_panel_of_the_other_strategies(person: Client, changes: dict[str, str], words: tuple[str, ...]):
    answer = person.post(PREVIEW, filled(**changes)).json()
    assert answer["errors"] == {}
    for word in words:
        assert word in unescape(answer["panel"])


def test_a_pipeline_of_a_recipe_that_cannot_be_cut_is_refused_at_the_strategy(person: Client):
    answer = person.post(PREVIEW, filled(strategy="pipeline")).json()
    assert "does not define its stages" in answer["errors"]["strategy"]
    staged = RECIPE.decode() + "\n\ndef build_stages(params, count):\n    return []\n"
    sent = filled(strategy="pipeline", source="text", text=staged, filename="mine.py", micro_batches="4")
    answer = person.post(PREVIEW, sent).json()
    assert answer["errors"] == {}
    assert "20 % of a step" in unescape(answer["panel"])
