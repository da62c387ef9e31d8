"""What a program asks for that is otherwise in training is noticed, and little else. One process for all cases."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.tf

BUILDS = """
import keras
model = keras.Sequential([keras.Input((4, 3)), keras.layers.GRU(2), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(tf.ones((4, 4, 3)), tf.ones((4, 1)), verbose=0)
"""
GROWS = """
for gpu in tf.config.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(gpu, True)
"""
ASKS_IN_A_LAYER = """
import keras
class Own(keras.layers.Layer):
    def build(self, shape):
        tf.config.list_physical_devices("CPU")
Own().build((1, 1))
"""
# Asked for -> whether that is noticed on a node with GPUs, and on one without.
CASES = {
    BUILDS: (False, False),
    "os.environ.get('HOME')": (False, False),
    "'PATH' in os.environ and os.getenv('TMPDIR')": (False, False),
    "os.environ.get('TF_CONFIG')": (True, True),
    "os.getenv('TF_CONFIG')": (True, True),
    "'TF_CONFIG' in os.environ": (True, True),
    "os.getenvb(b'TRAINYARD_ROLE')": (True, True),
    "dict(os.environ)": (True, True),
    "tf.distribute.cluster_resolver.TFConfigClusterResolver().task_type": (True, True),
    "os.environ.get('CUDA_VISIBLE_DEVICES')": (True, False),
    GROWS: (True, False),
    "tf.config.list_logical_devices(device_type='GPU')": (True, False),
    "tf.config.get_visible_devices('GPU')": (True, False),
    "tf.config.list_physical_devices()": (True, True),
    "tf.test.is_gpu_available()": (True, True),
    "import keras; keras.distribution.list_devices('gpu')": (True, False),
    "import keras; keras.distribution.list_devices()": (True, True),
    "import keras; keras.distribution.DataParallel()": (True, True),
    ASKS_IN_A_LAYER: (True, True),
    "for name in os.environ: print(name)": (True, True),
    "import library": (True, True),
    "os.environ['OMP_NUM_THREADS'] = '2'; from sklearn import datasets": (False, False),
    "print(tf.distribute.get_strategy().num_replicas_in_sync)": (True, True),
    "def build_layouts(params): return {'kernel': ['model', None]}": (False, False),
}
LIBRARY = "import os\ndef rank():\n    return os.environ['TF_CONFIG']\n"
PROCESS = """
import importlib.util, json, keras, sys
from pathlib import Path
from tests.agent.plans import make_spec
from worker_agent.trainer.training_run import TrainingRun
from worker_agent.trainer.trial.assessment import Assessment

root = Path(sys.argv[1])
sys.path.insert(0, str(root / "installed"))
told = []
for program in sorted(root.glob("*/recipe.py")):
    run = TrainingRun(entry=program, code=program.parent, spec=make_spec())
    nodes = ((False, True), (False, False), (True, False))
    found = [Assessment(run, offline=offline, gpus=gpus) for offline, gpus in nodes]
    for each in found:
        each.watch()
    spec = importlib.util.spec_from_file_location(f"recipe_{len(told)}", program)
    sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    told.append([each.may_differ for each in found])
print(json.dumps(told))
"""


def test_what_a_program_asks_for(tmp_path: Path) -> None:
    outside = "import socket; socket.getaddrinfo('127.0.0.1', 80)"
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed" / "library.py").write_text(LIBRARY)
    for number, text in enumerate([*CASES, outside]):
        folder = tmp_path / f"{number:02}"
        folder.mkdir()
        (folder / "recipe.py").write_text(f"import os\nimport tensorflow as tf\n{text}\n")
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", "TRAINYARD_ROLE": "worker:0"}
    command = [sys.executable, "-c", PROCESS, str(tmp_path)]
    said = subprocess.run(command, env=environment, check=True, timeout=200, stdout=subprocess.PIPE, text=True).stdout
    *told, last = json.loads(said.splitlines()[-1])
    found = {text: (with_gpus, without) for text, (with_gpus, without, _) in zip(CASES, told, strict=True)}
    assert found == CASES
    assert all(offline == without for _, without, offline in told)
    assert last == [False, False, True]
