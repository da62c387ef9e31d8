"""Programs that use DTensor: on the devices of one process, and over several processes."""

from pathlib import Path

import pytest

from tests.trainer.gang import Zygote
from tests.trainer.script.test_scripts import SCRIPTS, completed, script
from worker_agent.protocol.states import Keras, Strategy

pytestmark = pytest.mark.tf

DTENSOR_ALONE = """
    import tensorflow as tf
    from tensorflow.experimental import dtensor

    mesh = dtensor.create_mesh([("batch", 1)], devices=["CPU:0"])
    one = dtensor.copy_to_mesh(tf.constant([1.0]), dtensor.Layout.replicated(mesh, rank=1))
    print("total", float(tf.reduce_sum(one)))
"""


def test_dtensor(tmp_path: Path, keras3: Zygote) -> None:
    job = script(tmp_path, SCRIPTS / "dtensor_mlp.py", Strategy.TENSOR_PARALLEL, devices=4, keras=Keras.KERAS3)
    job.start(keras3).wait(90)
    lead = job["worker:0"]
    assert completed(lead)
    losses = lead.series("loss")
    assert list(losses) == list(range(1, 31))
    assert losses[30] < losses[1]
    assert lead.facts()["mesh"] == {"batch": 2, "model": 2}


def test_dtensor_of_one_process_waits_for_nobody(tmp_path: Path, keras3: Zygote) -> None:
    """Of two workers, for the control plane refuses it: the program makes no mesh over them, so neither waits."""
    job = script(tmp_path, DTENSOR_ALONE, Strategy.TENSOR_PARALLEL, workers=2, keras=Keras.KERAS3)
    job.start(keras3).wait(60)
    assert all(completed(member) and "total 1.0\n" in member.log() for member in job.members)


def test_dtensor_over_processes(tmp_path: Path, keras3: Zygote) -> None:
    """DTensor reads variables of its own; a sum goes over both processes."""
    summing = """
        import numpy as np
        import tensorflow as tf
        from tensorflow.experimental import dtensor

        dtensor.initialize_accelerator_system("CPU")
        mesh = dtensor.create_distributed_mesh([("batch", 4)], device_type="CPU")
        rows = dtensor.Layout(["batch"], mesh)
        own = [tf.constant([float(2 * dtensor.client_id() + i + 1)]) for i in range(2)]
        total = tf.function(tf.reduce_sum)(dtensor.pack(own, rows))
        print("total", float(dtensor.fetch_tensor(total) if hasattr(dtensor, "fetch_tensor") else total))
    """
    job = script(tmp_path, summing, Strategy.TENSOR_PARALLEL, workers=2, devices=2, keras=Keras.KERAS3)
    job.start(keras3).wait(90)
    for member in job.members:
        assert completed(member)
        assert "total 10.0\n" in member.log()
