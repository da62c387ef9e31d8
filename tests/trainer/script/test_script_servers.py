"""Scripts under parameter servers: with servers of their own, without, and as in TensorFlow 1."""

from pathlib import Path

import pytest

from tests.trainer.gang import Zygote
from tests.trainer.script.test_scripts import SCRIPTS, completed, script
from worker_agent.protocol.states import Cause, Keras, Strategy

pytestmark = pytest.mark.tf


def test_parameter_servers_of_a_script_with_servers_of_its_own(tmp_path: Path, tf_keras: Zygote) -> None:
    job = script(tmp_path, SCRIPTS / "parameter_server_loop.py", Strategy.PARAMETER_SERVER, workers=2, ps=2)
    job.start(tf_keras).wait(90, names=["chief:0"])
    job.stop()
    job.wait(20)
    chief = job["chief:0"]
    assert completed(chief)
    assert "updates 60\n" in chief.log()
    assert chief.series("loss")[60] < chief.series("loss")[10]
    assert {job[name].exit().cause for name in ("worker:0", "worker:1", "ps:0", "ps:1")} == {Cause.STOPPED}
    assert (chief.facts()["replicas_in_sync"], chief.facts()["gang"]) == (1, {"chief": 1, "worker": 2, "ps": 2})
    assert job["worker:1"].facts()["devices"] == ["CPU:0"]
    assert all(member.facts()["memory_bytes"] > 100e6 for member in job.members)


def test_parameter_servers_served_for_a_script_without(tmp_path: Path, tf_keras: Zygote) -> None:
    job = script(tmp_path, SCRIPTS / "parameter_server_fit.py", Strategy.PARAMETER_SERVER, workers=2, ps=1)
    job.start(tf_keras).wait(90, names=["chief:0"])
    job.stop()
    job.wait(20)
    chief = job["chief:0"]
    assert completed(chief)
    assert [summary.epoch for summary in chief.summaries()] == [1, 2, 3]
    assert {1, 40, 120} <= set(chief.series("loss"))
    for name in ("worker:0", "worker:1", "ps:0"):
        assert job[name].phases() == ["rendezvous", "serving"]
        assert "this role serves, the chief runs the script" in job[name].log()


def test_parameter_servers_of_tensorflow_1_have_no_chief(tmp_path: Path, tf_keras: Zygote) -> None:
    """Worker 0 leads; every process runs the program, and the numbers are those of its summaries."""
    program, steps = SCRIPTS / "parameter_server_tf1.py", ["--steps", "300"]
    job = script(
        tmp_path,
        program,
        Strategy.PARAMETER_SERVER,
        workers=2,
        ps=1,
        chief=False,
        arguments=steps,
        keras=Keras.TF_KERAS,
    )
    job.start(tf_keras).wait(150, names=["worker:0", "worker:1"])
    job.stop()
    job.wait(20)
    lead = job["worker:0"]
    assert completed(lead)
    assert completed(job["worker:1"])
    assert job["ps:0"].exit().cause is Cause.STOPPED
    assert {"loss", "global_step/sec"} <= lead.summaries()[-1].metrics.keys()
    assert lead.facts()["gang"] == {"worker": 2, "ps": 1}
