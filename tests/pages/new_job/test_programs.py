"""The new-job page when the program changes: hyper-parameters belong to the program they were typed for."""

import pytest
from django.test import Client

from orchestrator.models import Job, User
from tests.factories import RECIPE, make_cluster, make_node
from tests.pages.new_job.test_new_job import PREVIEW, URL, Fields, filled, upload


@pytest.fixture
def person(member: User, client_of) -> Client:
    place = make_cluster("yard")
    make_node(place, "one")
    make_node(place, "two")
    return client_of(member)


@pytest.mark.parametrize(
    "changes",
    [
        {"params_of": "recipe digits_cnn", "source": "text", "text": RECIPE.decode(), "filename": "a.py"},
        {"params_of": "text", "source": "recipe", "recipe": "digits_mlp"},
        {"params_of": "upload " + "0" * 64, "source": "recipe", "recipe": "digits_mlp"},
        {"params_of": "upload", "source": "text", "text": RECIPE.decode(), "filename": "a.py"},
    ],
)
def test_what_was_typed_for_one_program_is_not_given_to_another(person: Client, changes: dict[str, str]):
    assert person.post(URL, filled(**changes, **{"param-units": "7"})).status_code == 302
    job = Job.objects.get()
    assert job.spec["params"]["units"] != 7


def test_an_upload_after_a_recipe_or_another_upload_starts_with_its_own_defaults(person: Client):
    first = filled(source="upload", upload=upload(), params_of="recipe digits_mlp", **{"param-units": "7"})
    answer = person.post(PREVIEW, first).json()
    fields = Fields(answer["program"])
    default = fields.values["param-units"]
    assert default != "7"
    own = {"params_of": fields.values["params_of"], "kept": fields.values["kept"], "kept_name": "tiny.py"}
    typed = filled(source="upload", **own, **{"param-units": "7"})
    assert Fields(person.post(PREVIEW, typed).json()["program"]).values["param-units"] == "7"
    other = person.post(PREVIEW, typed | {"upload": upload(RECIPE + b"\n# another\n")}).json()
    assert Fields(other["program"]).values["param-units"] == default
    assert other["program_key"] != answer["program_key"]


def test_the_text_of_a_recipe_keeps_what_was_typed_for_the_recipe(person: Client):
    sent = filled(do="edit", params_of="recipe digits_cnn")
    opened = Fields(person.post(URL, sent).content.decode()).values
    again = filled(source="text", text=opened["text"], filename="a.py", params_of=opened["params_of"])
    assert person.post(URL, again).status_code == 302
    assert Job.objects.get().spec["params"]["filters"] == 8
