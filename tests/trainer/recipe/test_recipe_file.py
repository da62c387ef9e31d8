"""Recipes read, checked and loaded; their parameters."""

import sys
from pathlib import Path

import pytest

from worker_agent.protocol.job.recipe_text import ParamInfo
from worker_agent.trainer.outcome import TrainingFailed
from worker_agent.trainer.recipe import recipe_file
from worker_agent.trainer.recipe.params import effective_params, from_text

DECLARED = (
    ParamInfo("units", "int", 8, min=1, max=64),
    ParamInfo("lr", "float", 0.1, min=0.0),
    ParamInfo("wide", "bool", False),
    ParamInfo("kind", "choice", "a", choices=("a", "b")),
    ParamInfo("label", "str", ""),
)
LACKS = "is missing: a recipe defines it at the top level"
WHOLE = "def build_model(params): return params\ndef build_dataset(params, split): return split\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def build_model(params):\n  return (\n", "recipe.py, line 2: syntax error: '(' was never closed."),
        ("def build_model(params): pass\n", f"recipe.py: build_dataset(params, split) {LACKS}."),
        ("x = 1\n", f"recipe.py: build_model(params) {LACKS}; recipe.py: build_dataset(params, split) {LACKS}."),
        ("x = '\0'\n", "recipe.py: syntax error: source code string cannot contain null bytes."),
    ],
)
def test_what_cannot_be_a_recipe_is_told_with_its_line(text: str, message: str, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.py"
    recipe.write_text(text)
    with pytest.raises(TrainingFailed) as told:
        recipe_file.declared(recipe)
    assert told.value.message == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def build_model(): pass\n", "build_model() takes (): let it take (params)."),
        ("def build_model(a, b): pass\n", "build_model() takes (a, b): let it take (params)."),
        ("def build_dataset(params): pass\n", "build_dataset() takes (params): let it take (params, split)."),
        (
            "def build_dataset(p, *, split): pass\n",
            "build_dataset() takes (p, *, split): let it take (params, split).",
        ),
        ("build_model = 3\n", "build_model in recipe.py is not a function."),
    ],
)
def test_a_function_that_cannot_be_called_is_told_before_it_is(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    recipe = tmp_path / "recipe.py"
    recipe.write_text(WHOLE + text)
    with pytest.raises(TrainingFailed) as told:
        recipe_file.load(recipe, tmp_path, {})
    assert told.value.message == message


@pytest.mark.parametrize(
    ("returned", "held"),
    [
        ("None", "NoneType"),
        ("'dense'", "str"),
        ("['dense', 'dense_1']", "a list of str"),
        ("[['a'], None]", "a list of NoneType"),
    ],
)
def test_stages_that_are_no_lists_of_names_are_told(
    returned: str, held: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    recipe = tmp_path / "recipe.py"
    recipe.write_text(f"{WHOLE}def build_stages(params, count): return {returned}\n")
    with pytest.raises(TrainingFailed) as told:
        recipe_file.load(recipe, tmp_path, {}).stages(2)
    assert told.value.message == f"build_stages() returned {held}: let it give one list of layer names for each device."


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(TrainingFailed, match=r"recipe\.py cannot be read: No such file"):
        recipe_file.declared(tmp_path / "recipe.py")


@pytest.mark.parametrize(
    "text",
    [
        WHOLE,
        "from elsewhere import build_model, build_dataset\n",
        "from elsewhere import *\n",
        "build_model = build_dataset = print\n",
        "try:\n  from a import build_model\nexcept ImportError:\n  build_model = 1\nimport data as build_dataset\n",
    ],
)
def test_functions_may_come_from_anywhere(text: str, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.py"
    recipe.write_text(text)
    recipe_file.declared(recipe)


def test_a_recipe_imports_its_neighbours_and_gets_its_parameters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "sub").mkdir()
    (tmp_path / "trainyard_neighbour.py").write_text("WORD = 'hello'\n")
    recipe = tmp_path / "sub/mine.py"
    recipe.write_text(
        "from trainyard_neighbour import WORD\n"
        "PARAMS = {'n': {'type': 'int', 'default': 2}}\n"
        "def build_model(params): return WORD * params['n']\n"
        "def build_dataset(params, split, shard=None): return split, shard\n"
        "def callbacks(params): return [params['n']]\n"
    )
    loaded = recipe_file.load(recipe, tmp_path, {"n": 3})
    assert loaded.model() == "hellohellohello"
    assert loaded.dataset("train", (4, 1)) == ("train", (4, 1))
    assert loaded.takes_shard
    assert loaded.callbacks() == [3]


def test_a_recipe_without_shards_is_not_given_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    recipe = tmp_path / "plain.py"
    recipe.write_text(WHOLE)
    loaded = recipe_file.load(recipe, tmp_path, {})
    assert loaded.dataset("validation", (1, 0)) == "validation"
    assert not loaded.takes_shard
    assert loaded.callbacks() == []


def test_parameters_are_read_from_the_text_alone(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.py"
    recipe.write_text(f"import nothing_of_that_name\nPARAMS = {{'n': {{'type': 'int', 'default': 2}}}}\n{WHOLE}")
    assert recipe_file.declared(recipe).params == (ParamInfo("n", "int", 2),)
    recipe.write_text(f"PARAMS = make()\n{WHOLE}")
    with pytest.raises(TrainingFailed, match=r"recipe\.py, line 1: PARAMS has to be written out as a literal"):
        recipe_file.declared(recipe)


def test_defaults_are_filled_in() -> None:
    assert effective_params(DECLARED, {"lr": 1}) == {"units": 8, "lr": 1.0, "wide": False, "kind": "a", "label": ""}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"untis": 3}, "Unknown parameter untis. The recipe's parameters are: kind, label, lr, units, wide."),
        ({"units": 65}, "Parameter units: 65 is outside 1 to 64."),
        ({"units": True}, "Parameter units: True is not a whole number."),
        ({"units": 2.5}, "Parameter units: 2.5 is not a whole number."),
        ({"lr": -1.0}, "Parameter lr: -1.0 is outside 0.0 to …."),
        ({"lr": float("nan")}, "Parameter lr: nan is not a finite number."),
        ({"wide": 1}, "Parameter wide: 1 is not true or false."),
        ({"kind": "c"}, "Parameter kind: 'c' is not one of a, b."),
    ],
)
def test_wrong_parameters_are_told_in_words(given: dict[str, object], message: str) -> None:
    with pytest.raises(TrainingFailed) as told:
        effective_params(DECLARED, given)  # type: ignore[arg-type]
    assert told.value.message == message


def test_text_of_a_command_line_gets_the_declared_types() -> None:
    given = {"units": "3", "lr": "1e-2", "wide": "yes", "kind": "b", "label": "7", "other": "x"}
    typed = {"units": 3, "lr": 0.01, "wide": True, "kind": "b", "label": "7", "other": "x"}
    assert from_text(DECLARED, given) == typed
    with pytest.raises(TrainingFailed, match="Parameter units: 'many' is not a whole number"):
        from_text(DECLARED, {"units": "many"})
    with pytest.raises(TrainingFailed, match="Parameter wide: 'maybe' is not true or false"):
        from_text(DECLARED, {"wide": "maybe"})
