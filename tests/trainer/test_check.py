"""One look at a program: what is found and learned of sound and unsound recipes. One process for all of a Keras."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent.plans import make_launch, make_plan, make_spec
from worker_agent.folder import PLAN_FILE
from worker_agent.protocol.codec import encode_plan
from worker_agent.protocol.states import Kind, Strategy

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
SCHEDULE = "keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.1, 10))"
OWN_STEP = SOUND.replace("keras.Sequential", "Own").replace(
    "def build_model",
    "class Own(keras.Sequential):\n    def train_step(self, data):\n        return {}\n\ndef build_model",
)
GANG = {"strategy": Strategy.MULTI_WORKER_MIRRORED, "workers": 2, "global_batch_size": 32}

PROGRAM = """
import json, sys
from pathlib import Path
from worker_agent.trainer import check
for folder in sys.argv[1:]:
    check.main(Path(folder))
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[list[dict[str, object]], dict[str, str]]]:
    """By case: findings and facts."""
    root = tmp_path_factory.mktemp("check")
    lines = [root / f"{number}.txt" for number in range(3)]
    for path in lines:
        path.write_text("a line\n" * 40)
    names = ", ".join(repr(str(path)) for path in lines)
    cases: dict[str, tuple[str, dict[str, object]]] = {
        "sound": (SOUND, GANG),
        "few rows": (HEAD + MODEL.format(units=2) + DATA.format(rows=10), GANG),
        "shapes": (HEAD + MODEL.format(units=5) + DATA.format(rows=100), {"global_batch_size": 32}),
        "raises": (SOUND.replace("    model.compile", "    raise ValueError('no such layer')\n    model.compile"), {}),
        "leaves": (SOUND + "\nraise SystemExit(3)\n", {}),
        "not compiled": (SOUND.replace('    model.compile("sgd", "mse")\n', ""), {}),
        "endless": (SOUND.replace(" if split", ".repeat() if split"), {}),
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
        (folder / PLAN_FILE).write_bytes(encode_plan(plan))
        folders.append((name, folder))
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    apart = [folder for name, folder in folders if name == "tf_keras"]  # a process speaks one Keras
    together = [folder for name, folder in folders if name != "tf_keras"]
    for part in (apart, together):
        command = [sys.executable, "-c", PROGRAM, *map(str, part)]
        subprocess.run(command, env=environment, check=True, timeout=200, capture_output=True)
    return {name: tuple(json.loads((folder / "result.json").read_text())) for name, folder in folders}


def test_a_sound_recipe(results) -> None:
    findings, facts = results["sound"]
    assert findings == []
    assert (facts["Rows"], facts["Parameters"], facts["Steps an epoch"]) == ("100", "8", "3")
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


@pytest.mark.parametrize(
    ("case", "what", "why"),
    [
        ("few rows", "the training set does not suit the job", "has 10 rows, fewer than the global batch of 32"),
        ("shapes", "the model cannot be trained on the first batch", "hape"),
        (
            "raises",
            "the program's build_model() fails",
            "no such layer (in recipe.py, line 6, build_model)",
        ),
        ("leaves", "the file recipe.py cannot be loaded", "it called sys.exit(3)"),
        ("not compiled", "the program's build_model() fails", "not compiled"),
        ("stages", "the program's build_stages() fails", "left a stage of 2 without layers"),
        ("endless", "the training set does not suit the job", "never ends"),
        ("no files", "the training set does not suit the job", "reads no files that can be dealt out"),
        ("own step", "the model does not suit the job", "needs the stock train_step"),
        ("schedule", "the model does not suit the job", "a learning rate schedule of its own"),
        ("optimizer", "the model does not suit the job", "not with RMSprop"),
        ("one file", "the training set does not suit the job", "needs a file for each of the 2 workers"),
    ],
)
def test_what_would_make_the_job_fail(results, case: str, what: str, why: str) -> None:
    (finding,), _ = results[case]
    assert finding["blocks"]
    assert finding["what"] == what
    assert why in finding["why"]


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
