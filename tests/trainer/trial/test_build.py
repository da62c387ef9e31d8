"""One look at a program: what is found and learned of sound and unsound recipes. One process for all of a Keras."""

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.agent.plans import make_launch, make_plan, make_spec
from worker_agent.protocol.codec import encode_plan
from worker_agent.protocol.plan import Trial
from worker_agent.protocol.states import Kind, Strategy
from worker_agent.replica.folder import PLAN_FILE

pytestmark = pytest.mark.tf

HEAD = "import keras\nimport tensorflow as tf\n"
MODEL = """
def build_model(params):
    model = keras.Sequential([keras.layers.Dense({units})])
    model.compile("sgd", "mse")
    return model
"""
DATA = """
def build_dataset(params, split):
    rows = {rows}
    return tf.data.Dataset.from_tensor_slices((tf.ones((rows, 3)), tf.ones((rows, 2)))) if split == "train" else None
"""
SOUND = HEAD + MODEL.format(units=2) + DATA.format(rows=100)
FILES = """
def build_dataset(params, split):
    if split != "train":
        return None
    names = tf.data.Dataset.from_tensor_slices([{names}])
    return names.interleave(lambda name: tf.data.TextLineDataset(name)).map(lambda line: (tf.ones(3), tf.ones(2)))
"""
LINES = """
def build_dataset(params, split):
    if split != "train":
        return None
    return tf.data.TextLineDataset({names}).map(lambda line: (tf.ones(3), tf.ones(2)))
"""
GENERATED = """
def rows():
    for _ in range({rows}):
        yield tf.ones(3), tf.ones(2)

def build_dataset(params, split):
    kind = (tf.TensorSpec(3), tf.TensorSpec(2))
    return tf.data.Dataset.from_generator(rows, output_signature=kind) if split == "train" else None
"""
SCHEDULE = "keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.1, 10))"
OWN_STEP = SOUND.replace("keras.Sequential", "Own").replace(
    "def build_model",
    "class Own(keras.Sequential):\n    def train_step(self, data):\n        return {}\n\ndef build_model",
)
SHARDS = """
def build_dataset(params, split, shard=(1, 0)):
    rows = 100 // shard[0] if shard == (1, 0) else 5
    return tf.data.Dataset.from_tensor_slices((tf.ones((rows, 3)), tf.ones((rows, 2)))) if split == "train" else None
"""
FEW = HEAD + MODEL.format(units=2) + DATA.format(rows=10)
ENDLESS_VALIDATION = SOUND.replace(
    'if split == "train" else None', "if split == 'train' else tf.data.Dataset.range(3).repeat()"
)
SYNCHRONIZED = SOUND.replace("[keras", "[keras.layers.BatchNormalization(synchronized=True), keras")
STAGES = "def build_stages(params, count):\n    return [['first'], ['second']]\n"
TWO_DEVICES = {"workers": 1, "devices_per_worker": 2, "global_batch_size": 32}
GANG = {"strategy": Strategy.MULTI_WORKER_MIRRORED, "workers": 2, "global_batch_size": 32}

IN_TF_KERAS = ("tf_keras", "own step on servers", "few filtered for servers")

PROGRAM = f"""
import sys
from pathlib import Path
from worker_agent.protocol.codec import decode_plan
from worker_agent.trainer.trial import build
build.confine = lambda **limits: True  # without a network, and for all cases
for folder in sys.argv[1:]:
    plan = decode_plan((Path(folder) / "{PLAN_FILE}").read_bytes())
    build.build(plan, plan.trial)
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[list[dict[str, object]], dict[str, str]]]:
    """By case: findings and facts."""
    root = tmp_path_factory.mktemp("check")
    lines = [root / f"{number}.txt" for number in range(3)]
    for path in lines:
        path.write_text("a line\n" * 40)
    names = ", ".join(repr(str(path)) for path in lines)
    threes, single = [root / "a.txt", root / "b.txt"], root / "c.txt"
    for path, text in zip((*threes, single), ("a line\n" * 3, "a line\n" * 9, "a line\n"), strict=True):
        path.write_text(text)
    cases: dict[str, tuple[str, dict[str, object]]] = {
        "sound": (SOUND, GANG),
        "few rows": (FEW, GANG),
        "few rows, network": (FEW + "import socket\nsocket.getaddrinfo('127.0.0.1', 80)\n", GANG),
        "few rows, devices": (FEW + "tf.config.list_physical_devices('GPU')\n", GANG),
        "few in shards": (HEAD + MODEL.format(units=2) + SHARDS, GANG),
        "no model": (HEAD + DATA.format(rows=100), {}),
        "param": (SOUND, {"params": {"width": 3}}),
        "parts": (
            SOUND.replace('"sgd"', "keras.optimizers.SGD(gradient_accumulation_steps=4)"),
            {"accumulation": 2, "global_batch_size": 32},
        ),
        "own step in stages": (OWN_STEP + STAGES, {"strategy": Strategy.PIPELINE} | TWO_DEVICES),
        "own step on servers": (
            OWN_STEP,
            {"strategy": Strategy.PARAMETER_SERVER, "ps": 1, "sharding": "file", "global_batch_size": 32},
        ),
        "synchronized": (SYNCHRONIZED, GANG | {"jit": True}),
        "synchronized alone": (SYNCHRONIZED, {"jit": True, "global_batch_size": 32}),
        "not judged": (SOUND, GANG | {"validation": "evaluator"}),
        "whole layers": (
            SOUND,
            {"strategy": Strategy.TENSOR_PARALLEL, "workers": 3, "model_parallel": 3, "global_batch_size": 32},
        ),
        "shapes, not trained": (HEAD + MODEL.format(units=5) + DATA.format(rows=100), {"global_batch_size": 32}),
        "shapes": (HEAD + MODEL.format(units=5) + DATA.format(rows=100), {"global_batch_size": 32}),
        "raises": (SOUND.replace("    model.compile", "    raise ValueError('no such layer')\n    model.compile"), {}),
        "leaves": (SOUND + "\nraise SystemExit(3)\n", {}),
        "not compiled": (SOUND.replace('    model.compile("sgd", "mse")\n', ""), {}),
        "endless": (SOUND.replace(" if split", ".repeat() if split"), {}),
        "endless validation": (ENDLESS_VALIDATION, GANG),
        "endless validation, judged": (ENDLESS_VALIDATION, GANG | {"validation": "evaluator"}),
        "few generated": (HEAD + MODEL.format(units=2) + GENERATED.format(rows=7), GANG),
        "generated": (HEAD + MODEL.format(units=2) + GENERATED.format(rows=10**9), GANG),
        "generator fails": (HEAD + MODEL.format(units=2) + GENERATED.format(rows="int('x')"), GANG),
        "one line": (HEAD + MODEL.format(units=2) + LINES.format(names=f"[{str(single)!r}]"), GANG),
        "few in files": (
            HEAD + MODEL.format(units=2) + LINES.format(names=[str(path) for path in threes]),
            GANG | {"sharding": "file"},
        ),
        "own precision": (
            SOUND.replace("    model =", "    keras.config.set_dtype_policy('mixed_float16')\n    model ="),
            {"strategy": Strategy.CENTRAL_STORAGE} | TWO_DEVICES,
        ),
        "stages of nothing": (
            SOUND + "def build_stages(params, count): return None\n",
            {"strategy": Strategy.PIPELINE} | TWO_DEVICES,
        ),
        "no parameters": (SOUND.replace("build_model(params)", "build_model()"), {}),
        "few filtered for servers": (
            FEW.replace(" if split", ".enumerate().filter(lambda n, _: n < 5).map(lambda _, row: row) if split"),
            {"strategy": Strategy.PARAMETER_SERVER, "workers": 2, "ps": 1, "global_batch_size": 32},
        ),
        "three files": (HEAD + MODEL.format(units=2) + FILES.format(names=names), GANG),
        "one file": (
            HEAD + MODEL.format(units=2) + FILES.format(names=repr(str(lines[0]))),
            GANG | {"sharding": "file"},
        ),
        "no files": (SOUND, GANG | {"sharding": "file"}),
        "own step": (OWN_STEP, {"accumulation": 2, "global_batch_size": 32}),
        "schedule": (SOUND.replace('"sgd"', SCHEDULE), {"learning_rate": 0.1, "global_batch_size": 32}),
        "optimizer": (
            SOUND.replace('"sgd"', '"rmsprop"'),
            {"strategy": Strategy.TENSOR_PARALLEL, "workers": 2, "model_parallel": 2},
        ),
        "split layers": (
            SOUND,
            {
                "strategy": Strategy.TENSOR_PARALLEL,
                "workers": 2,
                "devices_per_worker": 2,
                "model_parallel": 2,
                "global_batch_size": 32,
            },
        ),
        "stages": (
            HEAD
            + MODEL.format(units=2).replace("[keras", "[keras.Input((3,)), keras")
            + "def build_stages(params, count):\n    return [['dense']] + [[]] * (count - 1)\n"
            + DATA.format(rows=100),
            {"strategy": Strategy.PIPELINE, "workers": 2},
        ),
        "tf_keras": (SOUND, {"strategy": Strategy.PARAMETER_SERVER, "workers": 2, "ps": 1, "global_batch_size": 32}),
        "script": ("import json\nimport no_such_package.part\n", {"kind": Kind.SCRIPT}),
    }
    folders = []
    for number, (name, (text, fields)) in enumerate(cases.items()):
        folder = root / f"case{number}"
        plan = make_plan(folder, make_launch(spec=make_spec(**fields), devices=[]))
        Path(plan.entry).write_text(text)
        trial = Trial(trains=not name.endswith("not trained"))
        plan = msgspec.structs.replace(plan, trial=trial)
        (folder / PLAN_FILE).write_bytes(encode_plan(plan))
        folders.append((name, folder))
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    apart = [folder for name, folder in folders if name in IN_TF_KERAS]  # a process speaks one Keras
    together = [folder for name, folder in folders if name not in IN_TF_KERAS]
    for part in (apart, together):
        command = [sys.executable, "-c", PROGRAM, *map(str, part)]
        subprocess.run(command, env=environment, check=True, timeout=200, capture_output=True)
    return {name: tuple(json.loads((folder / "result.json").read_text())[:2]) for name, folder in folders}


def test_a_sound_recipe(results) -> None:
    findings, facts = results["sound"]
    assert findings == []
    assert (facts["Rows"], facts["Parameters"], facts["Steps per epoch"]) == ("100", "8", "3")
    assert facts["First batch"] == "16 rows, one step done"
    assert facts["Left over"].startswith("4 rows an epoch")


def test_a_sound_recipe_in_tf_keras(results) -> None:
    findings, facts = results["tf_keras"]
    assert findings == []
    assert facts["Keras"].startswith("tf_keras 2.")
    assert facts["Parameters"] == "8"


def test_the_first_batch_is_what_one_replica_computes_at_once(results) -> None:
    """32 rows: a worker of parameter servers takes them alone, devices that share layers together."""
    batches = {name: facts["First batch"] for name, (_, facts) in results.items() if "First batch" in facts}
    assert batches["sound"] == "16 rows, one step done"
    assert batches["tf_keras"] == "32 rows, one step done"
    assert batches["split layers"] == "16 rows, one step done"


FEW_ROWS = "The training set has {}, fewer than the global batch of 32: choose a smaller batch, or give it more rows"
CERTAIN = {
    "few rows": FEW_ROWS.format("10 rows"),
    "few in shards": FEW_ROWS.format("10 rows"),
    "few in files": FEW_ROWS.format("6 rows"),
    "not compiled": "build_model() returned a model that is not compiled: call model.compile(…) in it",
    "stages": "build_stages() left a stage of 2 without layers: use fewer devices, or a deeper model",
    "endless": "The training set never ends: let build_dataset() return each row once, without repeat()",
    "endless validation": "The validation set never ends: let build_dataset() return each row once, without repeat()",
    "endless validation, judged": (
        "The validation set never ends: let build_dataset() return each row once, without repeat()"
    ),
    "not judged": "The recipe has no validation rows for an evaluator: set validation to gang",
    "few generated": FEW_ROWS.format("7 rows"),
    "one line": FEW_ROWS.format("1 row"),
    "few filtered for servers": FEW_ROWS.format("5 rows"),
    "own precision": (
        "Keras 3 cannot scale the loss under central storage: choose mixed_bfloat16, or the strategy Mirrored"
    ),
    "stages of nothing": "build_stages() returned NoneType: let it give one list of layer names for each device",
    "no parameters": "build_model() takes (): let it take (params)",
    "no model": "recipe.py: build_model(params) is missing: a recipe defines it at the top level",
    "param": "Unknown parameter width. The recipe's parameters are: none",
    "parts": "The job accumulates 2 parts of a step, the recipe's optimizer 4: set one of the two",
    "own step": "Gradient accumulation needs the standard train_step; this model has its own: leave it off",
    "own step in stages": (
        "A pipeline splits each step itself, and this model has a train_step of its own: leave it out"
    ),
    "synchronized": (
        "XLA cannot compile what the synchronized batch_normalization exchanges between replicas: leave it off"
    ),
    "optimizer": "Tensor parallel trains with SGD, Adam, AdamW, not with RMSprop",
}


@pytest.mark.parametrize("case", CERTAIN)
def test_what_the_training_would_refuse_is_certain(results, case: str) -> None:
    """In the words with which it would end, but for the full stop; what it says to do is the remedy."""
    (finding,), _ = results[case]
    assert (finding["blocks"], finding["certain"]) == (True, True)
    why, remedy = finding["why"], finding["remedy"]
    if why != CERTAIN[case]:
        assert f"{why}: {remedy[0].lower()}{remedy[1:]}" == CERTAIN[case]
    else:
        assert remedy == "Correct the program, or the settings of the job"


@pytest.mark.parametrize(
    ("case", "what", "why", "certain"),
    [
        ("few rows", "the training set does not suit the job", "has 10 rows", True),
        ("few rows, network", "the training set does not suit the job", "has 10 rows", False),
        ("few rows, devices", "the training set does not suit the job", "has 10 rows", False),
        ("shapes", "the model cannot be trained on the first batch", "hape", False),
        ("raises", "the program's build_model() fails", "no such layer (in recipe.py, line 6, build_model)", False),
        ("leaves", "the file recipe.py cannot be loaded", "it called sys.exit(3)", False),
        ("stages", "the model does not suit the job", "without layers", True),
        ("generator fails", "the training set cannot be read", "invalid literal for int()", False),
        (
            "no files",
            'the program\'s build_dataset(params, "train") does not suit the job',
            "reads no files that can be divided",
            True,
        ),
        ("own step", "the model does not suit the job", "needs the standard train_step", True),
        ("schedule", "the model does not suit the job", "a learning rate schedule of its own", True),
        (
            "one file",
            'the program\'s build_dataset(params, "train") does not suit the job',
            "needs a file for each of the 2 workers",
            True,
        ),
        ("whole layers", "the model does not suit the job", "No variable of this model can be split over 3", True),
        (
            "endless validation",
            'the program\'s build_dataset(params, "validation") does not suit the job',
            "The validation",
            True,
        ),
    ],
)
def test_what_would_make_the_job_fail(results, case: str, what: str, why: str, certain: bool) -> None:
    (finding,), _ = results[case]
    assert finding["blocks"]
    assert finding["what"] == what
    assert why in finding["why"]
    assert finding["certain"] is certain


@pytest.mark.parametrize("case", ["shapes, not trained", "synchronized alone", "own step on servers", "generated"])
def test_what_the_training_would_not_refuse(results, case: str) -> None:
    """Parameter servers take a train_step of the recipe's own, and deal out rows in their own way."""
    findings, facts = results[case]
    assert findings == []
    assert ("First batch" in facts) is (case != "shapes, not trained")


def test_files_that_do_not_divide_are_a_warning(results) -> None:
    (finding,), facts = results["three files"]
    assert not finding["blocks"]
    assert finding["what"] == "3 files do not divide by 2 workers"
    assert facts["Rows"] == "not known before they are read"


def test_a_script_is_read_and_not_run(results) -> None:
    (finding,), facts = results["script"]
    assert not finding["blocks"]
    assert "no_such_package" in finding["what"]
    assert facts["Script"] == "read, not run"
