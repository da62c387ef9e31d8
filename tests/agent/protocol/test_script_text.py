"""What a script's text says of itself, and which requirements are taken: rules that both sides of the wire share."""

import pytest

from tests.domain.gang.gangs import spec
from worker_agent.protocol.job.requirements import digest_of, lines_of, problem_of
from worker_agent.protocol.job.script.script_text import entry_of, inspect_script, runs_script
from worker_agent.protocol.states import Keras, Kind, Role, Strategy


def said(*texts: str):  # type: ignore[no-untyped-def]
    return inspect_script([(f"file{number}.py", text) for number, text in enumerate(texts)])


SERVER_TEXT = "tf.distribute.Server(spec)"


@pytest.mark.parametrize(
    ("files", "read"),
    [
        ({"main.py": "import lib", "lib.py": SERVER_TEXT}, True),
        ({"main.py": "print(1)", "lib.py": SERVER_TEXT}, False),
        ({"main.py": "import lib", "other/lib.py": SERVER_TEXT}, True),
        ({"main.py": "import lib", "lib.py": "", "other/lib.py": SERVER_TEXT}, False),
        ({"src/main.py": "import lib", "src/lib.py": "", "lib.py": SERVER_TEXT}, False),
        ({"main.py": "import pkg.part", "pkg/__init__.py": SERVER_TEXT, "pkg/part.py": ""}, True),
        ({"main.py": "from pkg import part", "pkg/__init__.py": "", "pkg/part.py": SERVER_TEXT}, True),
        ({"main.py": "from pkg import *", "pkg/__init__.py": "from . import part", "pkg/part.py": SERVER_TEXT}, True),
        ({"main.py": "import pkg", "pkg/__init__.py": "from .part import go", "pkg/part.py": SERVER_TEXT}, True),
        ({"a/b/main.py": "from ...top import go", "top.py": SERVER_TEXT}, True),
        ({"main.py": "import pkg", "pkg/__init__.py": "", "pkg/test_part.py": SERVER_TEXT}, False),
        ({"main.py": "importlib.import_module('lib')", "lib.py": SERVER_TEXT}, True),
        ({"main.py": "importlib.import_module(name)", "lib.py": SERVER_TEXT}, True),
        ({"main.py": "subprocess.run(['python', 'lib.py'])", "lib.py": SERVER_TEXT}, True),
        ({"main.py": "import b", "b.py": "import main, b, c", "c.py": "import b\n" + SERVER_TEXT}, True),
        ({"main.py": "from .............. import x", "x.py": SERVER_TEXT}, True),
    ],
)
def test_only_what_the_entry_leads_to_is_read(files, read):
    assert inspect_script(files.items()).serves is read


@pytest.mark.parametrize(
    ("text", "keras", "proposed"),
    [
        ("import tensorflow as tf\ntf.keras.Sequential()", None, Keras.KERAS3),
        ("from tensorflow import keras\nkeras.Sequential()", None, Keras.KERAS3),
        ("from tensorflow.keras import layers", None, Keras.KERAS3),
        ("import keras\n", Keras.KERAS3, Keras.KERAS3),
        ("from keras import layers\n", Keras.KERAS3, Keras.KERAS3),
        ("from keras.layers import Dense\n", Keras.KERAS3, Keras.KERAS3),
        ("import tf_keras\n", Keras.TF_KERAS, Keras.TF_KERAS),
        ("import os\nos.environ['TF_USE_LEGACY_KERAS'] = '1'\nimport keras", Keras.TF_KERAS, Keras.TF_KERAS),
        ("import tensorflow as tf\ntf.keras.optimizers.legacy.Adam()", None, Keras.TF_KERAS),
        ("from tensorflow.keras.optimizers.legacy import Adam", None, Keras.TF_KERAS),
        ("import tensorflow as tf\nmetric.reset_states()", None, Keras.TF_KERAS),
        ("from tensorflow.experimental import dtensor", None, Keras.TF_KERAS),
    ],
)
def test_the_keras_of_a_script(text, keras, proposed):
    info = said(text)
    assert info.keras is keras
    assert info.proposed_keras(Strategy.MIRRORED) is proposed


def test_parameter_servers_are_proposed_tf_keras_unless_the_script_has_its_own():
    assert said("import tensorflow").proposed_keras(Strategy.PARAMETER_SERVER) is Keras.TF_KERAS
    assert said("import keras").proposed_keras(Strategy.PARAMETER_SERVER) is Keras.KERAS3


def test_the_strategies_that_a_script_names():
    one = said("from tensorflow.distribute import MirroredStrategy\n")
    assert one.proposed_strategy is Strategy.MIRRORED
    several = said("s = tf.distribute.MirroredStrategy() if x else tf.distribute.experimental.CentralStorageStrategy()")
    assert several.strategies == (Strategy.MIRRORED, Strategy.CENTRAL_STORAGE)
    assert several.proposed_strategy is None
    assert said("print('MirroredStrategy')  # MirroredStrategy").strategies == ()


def test_who_runs_a_script_under_parameter_servers():
    branches = said("import file1", "server = tf.distribute.Server(spec)\nserver.join()")
    plain = said("strategy = tf.distribute.ParameterServerStrategy(resolver)  # no Server(")
    assert branches.serves
    assert not plain.serves
    served = spec(Strategy.PARAMETER_SERVER, kind=Kind.SCRIPT)
    without_chief = spec(Strategy.PARAMETER_SERVER, kind=Kind.SCRIPT, chief=False)
    for role in Role:
        assert runs_script(role, served, branches)
        assert runs_script(role, without_chief, plain)
        assert runs_script(role, spec(Strategy.MULTI_WORKER_MIRRORED, kind=Kind.SCRIPT), plain)
    assert {role for role in Role if runs_script(role, served, plain)} == {Role.CHIEF, Role.EVALUATOR}


SERVER = "server = tf.compat.v1.train.Server(cluster, job_name=kind, task_index=index)\n"
SESSION = "tf.compat.v1.train.MonitoredTrainingSession(server.target, is_chief=index == 0)\n"


@pytest.mark.parametrize(
    ("text", "leads"),
    [
        (SERVER + SESSION, True),
        (SERVER + "with tf.device(tf.compat.v1.train.replica_device_setter(cluster=c)): pass", True),
        (SERVER + SESSION + "if kind == 'chief': lead()", False),
        (SERVER + "strategy = tf.distribute.ParameterServerStrategy(resolver)", False),
        (SESSION, False),
    ],
)
def test_whose_worker_leads(text, leads):
    assert said(text).worker_leads is leads


def test_what_counts_before_the_import_of_tensorflow():
    assert said("os.environ['XLA_FLAGS'] = '--x'").sets_environment
    assert not said("config = os.environ['TF_CONFIG']").sets_environment


def test_a_broken_entry_is_a_problem_and_a_broken_neighbour_is_none():
    assert said("def f(:\n").problems == ("file0.py, line 1: syntax error: invalid syntax",)
    assert said("print(1)", "def f(:\n").problems == ()
    assert "null bytes" in said("a\0").problems[0]


@pytest.mark.parametrize("text", ["", "\n  \n", "# only a comment\n", '"""Only a docstring."""\n', "pass\n...\n"])
def test_an_entry_that_does_nothing_is_a_problem(text):
    said_of = "file0.py: this program does nothing: write one, or give the file that is to run"
    assert said(text, "print(1)").problems == (said_of,)
    assert said("import lib", text).problems == ()


def test_the_file_that_is_run():
    assert entry_of(["a.py", "lib/b.py"]) == "a.py"
    assert entry_of(["a.py", "main.py", "train.py"]) == "main.py"
    assert entry_of(["a.py", "b.py"]) is None
    assert entry_of(["lib/b.py"]) is None
    assert entry_of(["lib/b.py"], asked="lib/b.py") == "lib/b.py"
    assert entry_of(["lib/b.py"], asked="./lib/b.py") == "lib/b.py"
    assert entry_of(["lib/b.py"], asked="../b.py") is None


@pytest.mark.parametrize(
    "line",
    ["tqdm", "tqdm>=4", "tqdm >= 4, <5", "a.b_c-d==1.0.post1", "x[extra,other]~=2.0", 'y!=3; python_version < "3.12"'],
)
def test_requirements_that_are_taken(line):
    assert problem_of(line) == ""


@pytest.mark.parametrize(
    "line",
    [
        "-r other.txt",
        "--extra-index-url x",
        "pkg @ https://host/x.whl",
        "https://host/x.whl",
        "./local",
        "/abs/x.whl",
        "git+https://host/x",
        "a b",
        "tqdm --no-deps",
        "x" * 301,
    ],
)
def test_requirements_that_are_refused(line):
    assert "is not a package and its version" in problem_of(f"tqdm\n{line}")


def test_requirements_are_known_by_what_they_ask_for():
    assert lines_of("# all\n\n tqdm # bar\nabsl-py\n") == ["tqdm", "absl-py"]
    assert digest_of("tqdm\nabsl-py") == digest_of("absl-py\n# x\ntqdm\n")
    assert digest_of("tqdm") != digest_of("tqdm>1")
    assert "at most 200 lines" in problem_of("a\n" * 201)
