"""What is read out of a program's text without running it."""

import pytest

from orchestrator import catalogue
from worker_agent.protocol.job.recipe_text import ParamInfo, inspect_recipe
from worker_agent.protocol.job.script.script_text import inspect_script

BODY = "def build_model(params): ...\ndef build_dataset(params, split): ...\n"


def test_the_shipped_recipes_are_sound():
    entries = {entry.name: entry for entry in catalogue.entries()}
    assert set(entries) == {"breast_cancer", "char_lm", "digits_cnn", "digits_mlp", "transformer_lm"}
    for entry in entries.values():
        assert entry.info.problems == ()
        assert entry.info.title
        assert entry.info.description
    assert catalogue.entry("digits_cnn") == entries["digits_cnn"]
    assert catalogue.entry("../settings") is None


def test_declarations():
    text = (
        'TITLE = "T"\nDESCRIPTION: str = "D"\n'
        'PARAMS = {"n": {"type": "int", "default": 3, "min": 1, "max": 9, "help": "N."},'
        ' "act": {"type": "choice", "default": "a", "choices": ["a", "b"]}}\n' + BODY
    )
    info = inspect_recipe(text, "r.py")
    assert (info.title, info.description, info.problems) == ("T", "D", ())
    assert info.params == (
        ParamInfo("n", "int", 3, min=1, max=9, help="N."),
        ParamInfo("act", "choice", "a", choices=("a", "b")),
    )


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ("PARAMS = make()", "line 1: PARAMS has to be written out as a literal"),
        ("PARAMS = [1]", "PARAMS has to be a dict"),
        ("PARAMS = {1: {}}", "not a usable parameter name"),
        ("PARAMS = {'a': 3}", "parameter a has to be a dict"),
        ("PARAMS = {'a': {'type': 'list', 'default': 1}}", "type has to be one of"),
        ("PARAMS = {'a': {'type': ['int'], 'default': 1}}", "type has to be one of"),
        ("PARAMS = {'a': {'type': 'int', 'default': 'x'}}", "default 'x' is not a whole number"),
        ("PARAMS = {'a': {'type': 'int'}}", "default None is not a whole number"),
        ("PARAMS = {'a': {'type': 'int', 'default': 1, 'min': 'x'}}", "min has to be a number"),
        ("PARAMS = {'a': {'type': 'int', 'default': 5, 'max': 4}}", "default 5 is outside … to 4"),
        ("PARAMS = {'a': {'type': 'choice', 'default': 1}}", "needs choices"),
        ("PARAMS = {'a': {'type': 'choice', 'default': 1, 'choices': 5}}", "choices has to be a list"),
        ("PARAMS = {'a': {'type': 'int', 'default': 1, 'step': 2}}", "unknown key step"),
    ],
)
def test_problems_name_their_line(declared, words):
    (problem,) = inspect_recipe(f"{declared}\n{BODY}", "r.py").problems
    assert problem.startswith("r.py, line 1")
    assert words in problem


@pytest.mark.parametrize(
    "text",
    [
        "from helpers import build_model, build_dataset\n",
        "from helpers import *\n",
        "if True:\n    def build_model(p): ...\ntry:\n    from a import build_dataset\nexcept ImportError:\n    pass\n",
        "build_model = lambda params: None\nbuild_dataset = make()\n",
    ],
)
def test_functions_may_come_from_elsewhere(text):
    assert inspect_recipe(text, "r.py").problems == ()


def test_functions_inside_functions_do_not_count():
    text = "def outer():\n    def build_model(params): ...\n    def build_dataset(params, split): ...\n"
    assert len(inspect_recipe(text, "r.py").problems) == 2


@pytest.mark.parametrize("text", ["\x00", "(" * 5000, "x = " + "-" * 100_000 + "1", "\ufeff" + BODY + "def"])
def test_what_python_cannot_parse_is_a_problem(text):
    assert inspect_recipe(text, "r.py").problems


@pytest.mark.parametrize("text", ["-" * 100_000 + "1", "+".join("1" * 100_000)])
def test_what_is_nested_too_deeply_is_said_to_be(text):
    told = "r.py: this cannot be read as Python: it is nested too deeply"
    assert inspect_recipe(text, "r.py").problems == (told,)
    assert inspect_script([("r.py", text)]).problems == (told,)


@pytest.mark.parametrize(
    ("text", "stages"),
    [("", False), ("def build_stages(params, count): ...", True), ("from mine import *", True)],
)
def test_whether_a_recipe_says_where_it_can_be_cut(text, stages):
    assert inspect_recipe(text, "r.py").stages is stages
