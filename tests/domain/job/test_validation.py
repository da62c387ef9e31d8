"""Requests as they come: typed values, or a sentence at each wrong field. Junk is answered, never raised."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.job.validation import KNOWN_FIELDS, env_problem, read_fields
from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.protocol.job.recipe_text import ParamInfo, RecipeInfo
from worker_agent.protocol.states import Keras, Kind, Strategy

RECIPE = RecipeInfo(
    "T",
    "",
    (
        ParamInfo("units", "int", 8, min=1, max=64),
        ParamInfo("rate", "float", 0.5, min=0.0, max=1.0),
        ParamInfo("bias", "bool", True),
        ParamInfo("label", "str", "a"),
        ParamInfo("act", "choice", "relu", choices=("relu", "tanh")),
    ),
)
GOOD = {"name": "digits", "cluster": "lab", "recipe": "digits", "strategy": "one_device"}


def errors_of(recipe=RECIPE, **fields):
    return dict(read_fields(GOOD | fields, recipe).errors)


def values_of(**fields):
    found = read_fields(GOOD | fields, RECIPE)
    assert found.errors == []
    return found.values


def test_defaults():
    values = values_of()
    assert values["strategy"] is Strategy.ONE_DEVICE
    assert (values["workers"], values["ps"], values["devices_per_worker"], values["epochs"]) == (1, 0, 1, 5)
    assert values["params"] == {"units": 8, "rate": 0.5, "bias": True, "label": "a", "act": "relu"}
    assert values["learning_rate"] is None


@pytest.mark.parametrize(
    ("strategy", "shape"),
    [("mirrored", (1, 0, 2)), ("multi_worker_mirrored", (2, 0, 1)), ("parameter_server", (2, 1, 1))],
)
def test_defaults_follow_the_strategy(strategy, shape):
    values = values_of(strategy=strategy)
    assert (values["workers"], values["ps"], values["devices_per_worker"]) == shape


def test_text_from_forms_is_read_as_numbers():
    params = {"units": "4", "rate": "0.25", "bias": "off", "act": "tanh", "label": ""}
    values = values_of(epochs="3", global_batch_size=" 32 ", learning_rate="1e-3", seed=7.0, params=params)
    assert (values["epochs"], values["global_batch_size"], values["learning_rate"], values["seed"]) == (3, 32, 1e-3, 7)
    assert values["params"] == {"units": 4, "rate": 0.25, "bias": False, "label": "", "act": "tanh"}


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("name", "", "give the job a name"),
        ("name", "a\nb", "control character"),
        ("name", "a\x00b", "control character"),
        ("name", "\ud800", "surrogate"),
        ("name", "x" * 101, "101 characters"),
        ("name", ["a"], "has to be text"),
        ("strategy", None, "choose one of one_device"),
        ("strategy", "horovod", "one of one_device"),
        ("strategy", {}, "one of one_device"),
        ("workers", 0, "from 1 to 1024, not 0"),
        ("workers", True, "whole number"),
        ("workers", 1.5, "whole number"),
        ("workers", math.nan, "whole number"),
        ("workers", 10**4000, "so large a number"),
        ("workers", "9" * 5000, "whole number"),
        ("global_batch_size", -1, "from 1"),
        ("epochs", "many", "whole number"),
        ("learning_rate", math.nan, "not a number"),
        ("learning_rate", "inf", "infinity"),
        ("learning_rate", 0, "from 1e-12"),
        ("learning_rate", 10**4000, "a number from"),
        ("lr_scaling", "cubic", "none, linear, sqrt"),
        ("warmup_epochs", -1, "from 0 to 100000, not -1"),
        ("seed", -1, "from 0"),
        ("priority", 101, "from -100 to 100"),
        ("time_limit_s", -5, "from 0"),
        ("env", "A=1", "has to be an object"),
        ("env", {"1A": "x"}, "not a variable name"),
        ("env", {"A": "x\x00"}, "control character"),
        ("env", {"A": []}, "A has to be text"),
        ("env", {"TF_CONFIG": "{}"}, "set by Trainyard itself"),
        ("env", {"TRAINYARD_X": "1"}, "set by Trainyard itself"),
        ("env", {f"V{number}": "" for number in range(101)}, "at most 100"),
        ("params", [1], "has to be an object"),
        ("nodes", "n1", "there is no field 'nodes'"),
        ("kind", "notebook", "recipe, script"),
        ("keras", "keras2", "keras3, tf_keras"),
        ("chief", "perhaps", "true or false"),
        ("jit", 2, "true or false"),
        ("accumulation", 0, "from 1 to 4096"),
        ("precision", "float8", "float32, mixed_float16, mixed_bfloat16"),
        ("communication", "gloo", "auto, ring, nccl"),
        ("cross_device", "ring", "reduction_to_one_device"),
        ("sharding", "FILE", "auto, data, file, off"),
        ("validation", "none", "gang, evaluator"),
        ("model_parallel", 0, "from 1"),
        ("micro_batches", "four", "whole number"),
        ("checkpoints_kept", -1, "from 0"),
        ("resume_from", "last", "whole number"),
        ("tpu", "a\nb", "control character"),
        ("arguments", "--x", "list of texts"),
        ("arguments", ["a", 1], "argument 2 has to be text"),
        ("arguments", ["a\x00"], "argument 1 contains a control character"),
        ("arguments", ["x"] * 201, "at most 200"),
        ("working_dir", "/etc", "no leading /"),
        ("working_dir", "a/../../b", "no .."),
        ("tf_config", 5, "has to be text"),
        ("tf_config", {"a": math.nan}, "has to be JSON"),
        ("requirements", "--find-links http://x", "options, addresses"),
        ("requirements", "-e .", "options, addresses"),
        ("requirements", "x @ http://x/y.whl", "options, addresses"),
        ("requirements", "einops==1\ngit+https://x", "'git+https://x' is not a package"),
        ("requirements", "a" * 301, "is not a package"),
        ("requirements", "a\n" * 201, "at most 200 lines; there are 201"),
    ],
)
def test_what_is_wrong_is_said_at_its_field(field, value, words):
    assert words in errors_of(**{field: value})[field]


def test_what_a_script_has_is_read_as_it_is_meant():
    values = values_of(
        kind="script",
        arguments=["--epochs", "3", ""],
        working_dir="./src/train/",
        tf_config={"cluster": {"worker": ["h:1"]}},
        keras="tf_keras",
        requirements="# ours\neinops==0.8  # small\n\nrich[a,b]>=1,<2; python_version > '3'\n",
    )
    assert (values["kind"], values["keras"]) == (Kind.SCRIPT, Keras.TF_KERAS)
    assert values["arguments"] == ["--epochs", "3", ""]
    assert values["working_dir"] == "src/train"
    assert values["tf_config"] == '{"cluster": {"worker": ["h:1"]}}'
    assert values["requirements"] == "einops==0.8\nrich[a,b]>=1,<2; python_version > '3'"
    assert "params" not in values


def test_an_absent_field_has_the_default_of_the_job_spec():
    values = values_of()
    for known in msgspec.structs.fields(JobSpec):
        if known.name in values and known.name not in ("name", "strategy", "params"):
            default = known.default_factory() if known.default is msgspec.NODEFAULT else known.default
            assert values[known.name] == default, known.name


def test_every_field_of_the_job_spec_can_be_asked_for():
    fields = {known.name for known in msgspec.structs.fields(JobSpec)}
    assert set(KNOWN_FIELDS) - {"recipe"} == fields - {"version"}


@pytest.mark.parametrize(
    ("param", "value", "words"),
    [
        ("units", 65, "from 1 to 64, not 65"),
        ("units", "x", "whole number"),
        ("rate", 2.0, "from 0 to 1, not 2"),
        ("rate", math.inf, "infinity"),
        ("bias", "perhaps", "true or false"),
        ("act", "sigmoid", "relu, tanh"),
        ("label", 5, "has to be text"),
        ("depth", 3, "declares no such parameter; it has units, rate"),
    ],
)
def test_hyper_parameters_are_held_to_their_declaration(param, value, words):
    assert words in errors_of(params={param: value})[f"params.{param}"]


def test_the_same_rules_for_a_clusters_environment():
    assert env_problem({"NCCL_DEBUG": "INFO"}) == ""
    assert "TMPDIR is set by Trainyard" in env_problem({"TMPDIR": "/x"})
    assert "field `keras`" in env_problem({"TF_USE_LEGACY_KERAS": "1"})


@pytest.mark.parametrize("value", ["x\nB=2", "x\n", "\r\nx", "x\u2028B=2", "x\x85B=2"])
def test_a_variables_value_is_one_line(value):
    assert errors_of(env={"A": value})["env"] == "A contains a line break: a variable's value is one line"
    assert env_problem({"A": "a\tb = c"}) == ""


words = st.text(alphabet="ab1 -.=\x00\n\ud800é", max_size=6)
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words | st.integers(), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*KNOWN_FIELDS, "x", 5]), junk))
def test_junk_never_raises(request_):
    found = read_fields(request_, RECIPE)
    assert all(isinstance(field, str) and message for field, message in found.errors)


@given(st.dictionaries(st.sampled_from([param.name for param in RECIPE.params]), junk))
def test_junk_in_hyper_parameters_never_raises(params):
    found = read_fields(GOOD | {"params": params}, RECIPE)
    accepted = found.values["params"]
    assert all(isinstance(value, bool | int | float | str) for value in accepted.values())


@pytest.mark.parametrize(("value", "meant"), [("1", Keras.TF_KERAS), ("True", Keras.TF_KERAS), ("0", Keras.KERAS3)])
def test_the_variable_of_old_keras_is_taken_as_the_field(value, meant):
    for chosen in ({}, {"keras": ""}, {"keras": meant.value}):
        found = read_fields(GOOD | {"env": {"TF_USE_LEGACY_KERAS": value, "A": "b"}} | chosen, RECIPE)
        assert (found.errors, found.values["keras"], found.values["env"]) == ([], meant, {"A": "b"})
        (finding,) = found.findings
        assert "the field `keras`" in finding.sentence
        assert not finding.blocks


def test_the_variable_of_old_keras_against_the_field_is_refused_by_name():
    errors = errors_of(keras="keras3", env={"TF_USE_LEGACY_KERAS": "1"})
    assert errors == {
        "env": "TF_USE_LEGACY_KERAS=1 asks for `tf_keras`, the field `keras` for `keras3`: leave one of them out"
    }
