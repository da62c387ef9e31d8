"""Adding a field and a strategy in a copy, as CONTRIBUTING.md says: at most three places, and the program knows."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tests.environment import ROOT, child_environment
from worker_agent.protocol.job.job_spec import FIELDS

PLACES_MAX = 3
COPIED = ("dashboard", "orchestrator", "worker_agent", "trainyard", "docs", "scripts", "examples")


@pytest.fixture(scope="module", params=["Add a field of a job", "Add a strategy"])
def followed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A section of CONTRIBUTING.md, and a copy of the program in which its list was followed."""
    copy = tmp_path_factory.mktemp("copy")
    for name in COPIED:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "vendor"))
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text.partition(f"## {request.param}\n")[2].partition("\n## ")[0]
    diffs = [dedent(each).strip("\n") for each in re.findall(r"```diff\n(.*?)```", section, re.DOTALL)]
    assert 0 < len(diffs) == len(re.findall(r"^[0-9]\. ", section, re.MULTILINE)) <= PLACES_MAX
    for diff in diffs:
        apply(diff, copy)
    answer(copy, "scripts/tables.py")
    return request.param, copy


def apply(diff: str, copy: Path) -> None:
    """Change one file of the copy."""
    head, *lines = diff.splitlines()
    path = copy / head.removeprefix("+++ ")
    old = "\n".join(line[1:] for line in lines if not line.startswith("+"))
    new = "\n".join(line[1:] for line in lines if not line.startswith("-"))
    before = path.read_text() if old else ""
    assert before.count(old) == 1 or not old, f"{head}: {old}"
    path.write_text(before.replace(old, new) if old else f"{new}\n")


def answer(copy: Path, *arguments: str) -> str:
    """What Python prints in the copy, which is all that it can import of the program."""
    settings = {
        "PYTHONPATH": str(copy),
        "DJANGO_SETTINGS_MODULE": "dashboard.config.settings",
        "TRAINYARD_SECRET_KEY": "only-for-tests-0123456789-0123456789-0123456789-0123456789",
        "TRAINYARD_DATA_DIR": str(copy / "data"),
    }
    asked = subprocess.run(
        [sys.executable, "-W", "ignore", *arguments],
        cwd=copy,
        env=child_environment() | settings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert asked.returncode == 0, asked.stderr
    return asked.stdout


def test_the_words_of_a_choice_are_where_the_list_says() -> None:
    section = (ROOT / "CONTRIBUTING.md").read_text().partition("## Add a field of a job\n")[2].partition("\n## ")[0]
    own = {row.type.__module__ for row in FIELDS.values() if row.options} - {"worker_agent.protocol.states"}
    assert own == {"worker_agent.protocol.job.choices"}
    assert all(f"`{module.replace('.', '/')}.py`" in section for module in own)


def test_everything_knows(followed: tuple[str, Path]) -> None:
    section, copy = followed
    name = "field" if section.startswith("Add a field") else "strategy"
    assert answer(copy, "-c", KNOWN[name]).strip() == "known"
    assert f"`{ADDED[name]}`" in (copy / "docs" / PAGES[name]).read_text()


@pytest.mark.tf
@pytest.mark.parametrize("followed", ["Add a strategy"], indirect=True)
def test_it_trains(followed: tuple[str, Path]) -> None:
    recipe = str(followed[1] / "examples" / "recipes" / "digits_mlp.py")
    told = answer(followed[1], "-m", "worker_agent.trainer", recipe, "--epochs", "1", "--strategy", "host")
    assert "epoch 1" in told.lower()


ADDED = {"field": "collective_timeout_s", "strategy": "host"}
PAGES = {"field": "fields.md", "strategy": "strategies.md"}
BEGIN = """
from types import SimpleNamespace
import django
django.setup()
from django.core.management import call_command
from django.template import Context, Template
from dashboard.api.v1 import api
from dashboard.forms import DEFAULTS, JobForm, request_from
from dashboard.views.job.settings import settings_of
from orchestrator.domain.job.combinations import refusals
from orchestrator.domain.job.validation import read_fields
from orchestrator.domain.placement.rehearsal import fingerprint
from worker_agent.protocol.job.job_spec import CodeRef, JobSpec
from worker_agent.protocol.states import Strategy

def spec(strategy, **fields):
    return JobSpec(name="t", cluster="lab", code=CodeRef("0" * 64, "r.py"), strategy=strategy, **fields)

def drawn(tag):
    return Template("{% load fields %}{% " + tag + " %}").render(Context({"form": form, "clusters": []}))

def shown(asked):
    return dict(settings_of(SimpleNamespace(typed_spec=asked, recipe="r", code=None)))

form = JobForm(DEFAULTS | {"recipe": "r", "cluster": "lab"})
asked = {"name": "t", "strategy": "multi_worker_mirrored"}
schema = api.get_openapi_schema()["components"]["schemas"]
call_command("makemigrations", check_changes=True, dry_run=True, verbosity=0)
"""
KNOWN = {
    "field": BEGIN
    + """
errors = dict(read_fields(asked | {"collective_timeout_s": 90_000}, None).errors)
assert errors == {"collective_timeout_s": "a whole number from 0 to 86400, not 90000"}, errors
assert read_fields(asked | {"collective_timeout_s": "60"}, None).values["collective_timeout_s"] == 60
described = schema["JobRequest"]["properties"]["collective_timeout_s"]
assert (described["maximum"], described["default"]) == (86_400, 0)
assert "Read under multi_worker_mirrored" in described["description"]
assert "collective_timeout_s" in schema["Spec"]["properties"]
page = drawn("job_folds form")
assert 'name="collective_timeout_s"' in page and "Longest all-reduce" in page
form.values["strategy"] = "multi_worker_mirrored"
assert request_from(form, code=None, declared=())["collective_timeout_s"] == "0"
changed = spec(Strategy.MULTI_WORKER_MIRRORED, collective_timeout_s=60)
assert shown(changed)["Longest all-reduce"] == "60 s"
assert fingerprint(changed, {}) != fingerprint(spec(Strategy.MULTI_WORKER_MIRRORED), {})
refused = dict(refusals(spec(Strategy.MIRRORED, collective_timeout_s=60)))
assert "choose `multi_worker_mirrored`" in refused["collective_timeout_s"]
print("known")
""",
    "strategy": BEGIN
    + """
from dashboard.views.new_job.new_job import job_strategies
from orchestrator.domain.job.batching import of_spec
from worker_agent.protocol.job.gang_shape import keras_of

assert read_fields(asked | {"strategy": "host"}, None).errors == []
assert dict(refusals(spec(Strategy.HOST, workers=2)))["workers"].startswith("Host runs in one process")
assert "host" in schema["Strategy"]["enum"]
assert "host: The processor of one machine" in schema["JobRequest"]["properties"]["strategy"]["description"]
page = drawn("job_field form 'strategy'")
assert 'value="host"' in page and "whatever devices it has" in page
form.values["strategy"] = "host"
assert {"accumulation", "jit"} <= set(request_from(form, code=None, declared=()))
assert '[value="host"]' in job_strategies(SimpleNamespace(method="GET")).content.decode()
assert shown(spec(Strategy.HOST))["Strategy"] == "Host"
assert of_spec(spec(Strategy.HOST)).sentences[0] == "64 examples a step on one device"
assert keras_of(spec(Strategy.HOST)).value == "keras3"
print("known")
""",
}
