"""Which programs need tf_keras: what their text is taken for, against what the installed Keras 3 and tf_keras do."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from worker_agent.protocol.job.script.script_text import inspect_script

pytestmark = pytest.mark.tf

HEAD = """
import numpy as np
import tensorflow as tf

x, y = np.zeros((8, 2), "float32"), np.zeros((8, 1), "float32")


def compiled(**given):
    made = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    made.compile(**({"optimizer": "sgd", "loss": "mse"} | given))
    made.build((None, 2))
    return made


def batches():
    while True:
        yield x, y


model = compiled()
"""
CHECKPOINT = "model.fit(x, y, verbose=0, callbacks=[tf.keras.callbacks.ModelCheckpoint({})])"
GRAPH = "tf.compat.v1.disable_eager_execution()\n"
PLACEHOLDER = GRAPH + "p = tf.compat.v1.placeholder(tf.float32, [None, 2])\n"
VARIABLE = "v = tf.Variable(1.0)\n"

# What a program does after HEAD, and whether it needs tf_keras.
PROGRAMS = {
    "model.fit(x, y, verbose=0)": False,
    "model.train_on_batch(x, y)": False,
    "model.train_on_batch(x, y, reset_metrics=True)": True,
    "model.fit(x, y, verbose=0, workers=2)": True,
    "model.fit_generator(batches(), steps_per_epoch=1, verbose=0)": True,
    "compiled(experimental_run_tf_function=False)": True,
    "compiled(steps_per_execution=2).fit(x, y, verbose=0)": False,
    "tf.keras.optimizers.legacy.SGD()": True,
    "from tensorflow.keras.optimizers import legacy\nlegacy.SGD()": True,
    "tf.keras.optimizers.experimental.SGD()": True,
    "tf.keras.optimizers.SGD(lr=0.1)": True,
    "tf.keras.optimizers.SGD(learning_rate=0.1)": False,
    "print(model.optimizer.lr)": True,
    "print(model.optimizer.learning_rate)": False,
    VARIABLE + "tf.keras.optimizers.SGD().minimize(lambda: v * v, [v])": True,
    VARIABLE + "tf.keras.optimizers.SGD().apply_gradients([(tf.constant(1.0), v)])": False,
    VARIABLE
    + "g = [(tf.constant(1.0), v)]\ntf.keras.optimizers.SGD().apply_gradients(g, "
    + "experimental_aggregate_gradients=False)": True,
    VARIABLE + "tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(lambda: v * v, var_list=[v])": False,
    "tf.keras.metrics.Mean().reset_states()": True,
    "tf.keras.metrics.Mean().reset_state()": False,
    "tf.keras.experimental.LinearModel()": True,
    "tf.keras.layers.experimental.preprocessing.Rescaling(0.1)": True,
    "tf.keras.layers.Rescaling(0.1)": False,
    "tf.keras.layers.LocallyConnected1D(1, 1)": True,
    "tf.keras.preprocessing.sequence.pad_sequences([[1]])": False,
    "tf.keras.preprocessing.text.Tokenizer()": False,
    "tf.keras.utils.experimental.DatasetCreator(lambda c: None)": True,
    "tf.keras.backend.set_learning_phase(1)": True,
    "tf.keras.backend.clear_session()": False,
    "model.save_weights('w')": True,
    "model.save_weights(f'{1}.h5')": True,
    "model.save_weights('w.weights.h5')": False,
    "model.save('m')": True,
    "model.save('m', save_format='tf')": True,
    "model.save('m.h5')": False,
    "model.save('m.keras')": False,
    "tf.train.Checkpoint(model=model).save('c')": False,
    CHECKPOINT.format("'c'"): True,
    CHECKPOINT.format("'c.keras'"): False,
    CHECKPOINT.format("'c{epoch}', save_weights_only=True"): True,
    CHECKPOINT.format("'c.weights.h5', save_weights_only=True"): False,
    CHECKPOINT.format("'c.keras', period=2"): True,
    "tf.saved_model.save(tf.Module(), 's')\ntf.keras.models.load_model('s')": True,
    PLACEHOLDER + "tf.compat.v1.layers.dense(p, 1)": True,
    PLACEHOLDER + "tf.keras.layers.Dense(1)(p)": False,
    "tf.compat.v1.disable_v2_behavior()\ncompiled().fit(x, y, verbose=0)": True,
    GRAPH + "tf.compat.v1.Session().run(tf.constant(1))": False,
    # Neither has it.
    "tf.estimator.Estimator(model_fn=lambda: None)": False,
}
# Each program in a child of one process that has imported TensorFlow.
RUNNER = """
import json, os, sys, tensorflow as tf
tf.keras
head, programs = json.load(sys.stdin)
for text in programs:
    if (child := os.fork()) == 0:
        code = 1
        try:
            os.chdir(sys.argv[1])
            exec(head + text, {})
            code = 0
        except BaseException as error:
            sys.stderr.write(f"{text}: {error!r}\\n")
        finally:
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def works(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bool]]:
    """Under which Keras each program runs to its end: "0" is Keras 3, "1" tf_keras."""
    folder = tmp_path_factory.mktemp("programs")
    both = {legacy: _run(folder / legacy, legacy) for legacy in ("0", "1")}
    return {text: {legacy: ends[place] for legacy, ends in both.items()} for place, text in enumerate(PROGRAMS)}


def _run(folder: Path, legacy: str) -> list[bool]:
    folder.mkdir()
    quiet = {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3", "TF_USE_LEGACY_KERAS": legacy}
    given = json.dumps([HEAD, list(PROGRAMS)])
    command = [sys.executable, "-W", "ignore", "-c", RUNNER, str(folder)]
    ran = subprocess.run(command, input=given, env=os.environ | quiet, text=True, capture_output=True, check=True)
    return [line == "0" for line in ran.stdout.splitlines() if line.lstrip("-").isdigit()]


@pytest.mark.parametrize("text", PROGRAMS)
def test_what_needs_tf_keras_is_told_by_the_text(text: str, works: dict[str, dict[str, bool]]) -> None:
    assert (works[text]["1"] and not works[text]["0"]) is PROGRAMS[text], works[text]
    assert inspect_script([("main.py", HEAD + text)]).old_keras is PROGRAMS[text]
