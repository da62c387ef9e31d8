"""What a script's text lets one expect under a strategy."""

import pytest

from orchestrator.domain.job.script_findings import findings_of, refusals
from tests.domain.gang.gangs import spec
from worker_agent.protocol.job.script.script_text import inspect_script
from worker_agent.protocol.states import Keras, Kind, Strategy

MIRRORED = "s = tf.distribute.MirroredStrategy()\n"
GANG = "s = tf.distribute.MultiWorkerMirroredStrategy()\n"
SERVED = "s = tf.distribute.ParameterServerStrategy(r)\n"
BRANCHES = "r = TFConfigClusterResolver()\ns = tf.distribute.Server(c)\n"
TF1 = BRANCHES + "with tf.compat.v1.train.MonitoredTrainingSession(s.target): pass\n"
OWN = SERVED + "for i in range(2): tf.distribute.Server(c, job_name='worker', task_index=i)\n"
DTENSOR = "from tensorflow.experimental import dtensor\n"
MEETS = DTENSOR + "dtensor.initialize_accelerator_system('CPU')\n"


def found(text, strategy, given=("devices_per_worker",), **fields):
    asked = spec(Strategy(strategy), kind=Kind.SCRIPT, **fields)
    return [finding.sentence for finding in findings_of(inspect_script([("main.py", text)]), asked, given=given)]


@pytest.mark.parametrize(
    ("text", "strategy", "fields"),
    [
        (MIRRORED, "mirrored", {}),
        (GANG, "multi_worker_mirrored", {"workers": 2}),
        (SERVED, "parameter_server", {"workers": 2, "ps": 1}),
        (DTENSOR, "tensor_parallel", {"workers": 2}),
        (MIRRORED + GANG, "multi_worker_mirrored", {"workers": 2}),
        ("print(1)\n", "one_device", {}),
        (OWN, "one_device", {}),
        (TF1, "one_device", {}),
        (TF1, "parameter_server", {"workers": 2, "ps": 1, "chief": False}),
        ("print(1)\n", "multi_worker_mirrored", {"workers": 1}),
    ],
)
def test_what_fits_is_passed_over(text, strategy, fields):
    assert found(text, strategy, **fields) == []


@pytest.mark.parametrize(
    ("text", "strategy", "fields", "words"),
    [
        (MIRRORED, "multi_worker_mirrored", {"workers": 2}, "2 processes that run it would train a separate model"),
        (MIRRORED, "parameter_server", {"workers": 2, "ps": 1}, "only the chief runs it, and would train alone"),
        (
            MIRRORED + BRANCHES,
            "parameter_server",
            {"workers": 2, "ps": 1},
            "each of the 4 processes",
        ),
        (OWN, "parameter_server", {"workers": 2, "ps": 1}, "each process would make a cluster of its own"),
        ("print(1)\n", "multi_worker_mirrored", {"workers": 2}, "the program names no strategy"),
        (GANG, "mirrored", {}, "one process without TF_CONFIG, so it trains alone. Choose `multi_worker_mirrored`"),
        (GANG, "parameter_server", {"workers": 2, "ps": 1}, "it gets the processes of ParameterServer"),
        (SERVED, "parameter_server", {"ps": 1, "keras": Keras.KERAS3}, "Keras 3 under ParameterServer"),
        ("m.reset_states()\n", "one_device", {"keras": Keras.KERAS3}, "what Keras 3 no longer has"),
    ],
)
def test_what_does_not_fit_is_a_warning(text, strategy, fields, words):
    (sentence,) = found(text, strategy, **fields)
    assert words in sentence


def test_a_program_that_imports_keras_itself_is_told_to_import_the_other():
    (sentence,) = found("import keras\nm.reset_states()\n", "one_device", keras=Keras.KERAS3)
    assert sentence.endswith("Write `import tf_keras as keras` in the program")


def test_a_number_of_devices_that_nobody_gave_is_told():
    (sentence,) = found(MIRRORED, "mirrored", given=(), devices_per_worker=2)
    assert sentence.startswith(
        "the number of devices was not given, so the job gets 2: MirroredStrategy makes a replica"
    )
    assert found(MIRRORED, "mirrored", devices_per_worker=2) == []
    assert found("print(1)", "mirrored", given=()) == found(GANG, "multi_worker_mirrored", given=()) == []


def test_dtensor_of_one_process_is_refused_several_workers():
    """They would never meet. A mesh over all of them, one worker, or another strategy is no matter."""

    def refused(text, strategy=Strategy.TENSOR_PARALLEL, workers=2):
        return refusals(inspect_script([("main.py", text)]), spec(strategy, kind=Kind.SCRIPT, workers=workers))

    ((field, sentence),) = refused(DTENSOR)
    assert field == "workers"
    assert sentence.endswith("each of the 2 workers would build a mesh of its own devices only. Use 1 worker")
    assert refused(DTENSOR + "dtensor.create_distributed_mesh([('x', 2)])\n") == []
    assert refused(MEETS) == refused(DTENSOR, workers=1) == refused(GANG, Strategy.MULTI_WORKER_MIRRORED) == []
