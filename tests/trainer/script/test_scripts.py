"""Unmodified programs as jobs: what works bare works here, with its metrics; what fails bare shows its own error."""

import os
import signal
import textwrap
import time
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.trainer.gang import Gang, Member, Zygote, gang
from tests.waiting import wait_until
from worker_agent.protocol import codec
from worker_agent.protocol.states import Cause, Keras, Kind, Strategy
from worker_agent.replica.folder import read_shim_state

pytestmark = pytest.mark.tf

SCRIPTS = Path(__file__).resolve().parents[3] / "examples/scripts"


def script(folder: Path, source: str | Path, strategy: Strategy = Strategy.ONE_DEVICE, **given: Any) -> Gang:
    """A job of this program: a file of the examples, or the text of one."""
    path = source if isinstance(source, Path) else folder / "main.py"
    if not isinstance(source, Path):
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source))
    return gang(folder / "job", path, strategy, program=Kind.SCRIPT, **given)


def completed(member: Member) -> bool:
    assert member.exit().cause is Cause.COMPLETED, member.log()[-3000:]
    return True


def flavoured(request: pytest.FixtureRequest, keras: Keras) -> Zygote:
    zygote: Zygote = request.getfixturevalue(keras.value)
    return zygote


@pytest.mark.parametrize("keras", list(Keras))
def test_fit_on_several_workers(keras: Keras, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Also Keras 3's, which needs two corrections; batch values are not summed over the workers."""
    example = SCRIPTS / "keras_multi_worker.py"
    job = script(tmp_path, example, Strategy.MULTI_WORKER_MIRRORED, workers=2, keras=keras, arguments=["--epochs", "2"])
    job.start(flavoured(request, keras)).wait(90)
    lead, other = job["worker:0"], job["worker:1"]
    assert completed(lead)
    assert completed(other)
    (history,) = [line for line in lead.log().splitlines() if line.startswith("history ")]
    per_epoch = [float(word) for word in history.removeprefix("history [").rstrip("]").split(", ")]
    assert [summary.metrics["loss"] for summary in lead.summaries()] == pytest.approx(per_epoch, abs=1e-6)
    losses = lead.series("loss")
    assert [losses[20], losses[40]] == pytest.approx(per_epoch, abs=1e-5)
    assert losses[19] == pytest.approx(losses[20], rel=0.2)
    assert other.series("loss")[40] == pytest.approx(losses[40], abs=1e-6)
    assert other.summaries() == []
    for last in (lead.progress()[-1], other.progress()[-1]):
        assert (last.step, last.total_steps, last.epoch, last.epochs) == (40, 40, 2, 2)
    assert lead.facts()["replicas_in_sync"] == 2
    assert lead.facts()["keras"].startswith("tf_keras 2." if keras is Keras.TF_KERAS else "keras 3.")
    assert lead.facts()["communication"] == "RING over gRPC"
    assert ("two corrections" in lead.log()) == (keras is Keras.KERAS3)


def test_mirrored_fit_sees_as_many_cpus_as_the_job_has_devices(tmp_path: Path, keras3: Zygote) -> None:
    job = script(tmp_path, SCRIPTS / "mirrored_fit.py", Strategy.MIRRORED, devices=2).start(keras3)
    job.wait(90)
    lead = job["worker:0"]
    assert completed(lead)
    assert "devices 2\n" in lead.log()
    assert set(lead.series("val_accuracy")) == {12, 24, 36, 48}
    assert lead.series("learning_rate")[48] == pytest.approx(0.001)
    # What TensorBoard's callback wrote into its event files.
    assert lead.series("train/epoch_loss")[3] == pytest.approx(lead.summaries()[-1].metrics["loss"], abs=1e-6)
    assert set(lead.summaries()[-1].metrics) == {"loss", "accuracy", "val_loss", "val_accuracy", "learning_rate"}


SCHEDULED = """
    import numpy as np
    import tensorflow as tf

    with tf.distribute.MultiWorkerMirroredStrategy().scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    rates = tf.keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 / (epoch + 1))
    model.fit(np.zeros((32, 2)), np.zeros((32, 1)), epochs=2, callbacks=[rates], verbose=0)
"""


def test_the_learning_rate_is_one_series_and_the_strategy_is_named(tmp_path: Path, tf_keras: Zygote) -> None:
    """tf_keras' schedulers call it `lr` in the logs."""
    job = script(tmp_path, SCHEDULED, Strategy.MULTI_WORKER_MIRRORED, keras=Keras.TF_KERAS).start(tf_keras)
    job.wait(90)
    lead = job["worker:0"]
    assert completed(lead)
    assert list(lead.series("learning_rate").values()) == pytest.approx([0.1, 0.05])
    assert lead.series("lr") == {}
    assert set(lead.summaries()[-1].metrics) == {"loss", "learning_rate"}
    assert lead.facts()["strategy"] == "MultiWorkerMirroredStrategy"


@pytest.mark.parametrize("keras", list(Keras))
def test_custom_loops(keras: Keras, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """On two workers with trainyard.log, on two devices with tf.summary."""
    zygote = flavoured(request, keras)
    gang_job = script(
        tmp_path / "gang",
        SCRIPTS / "custom_loop_multi_worker.py",
        Strategy.MULTI_WORKER_MIRRORED,
        workers=2,
        keras=keras,
    ).start(zygote)
    alone = script(tmp_path / "alone", SCRIPTS / "mirrored_custom_loop.py", Strategy.MIRRORED, devices=2, keras=keras)
    alone.start(zygote)
    gang_job.wait(90)
    alone.wait(90)
    lead, single = gang_job["worker:0"], alone["worker:0"]
    assert completed(lead)
    assert completed(single)
    losses = lead.series("loss")
    assert list(losses) == list(range(1, 31))
    assert losses[30] < losses[1] / 2
    assert gang_job["worker:1"].series("loss") == pytest.approx(losses)
    assert (lead.progress()[-1].step, lead.progress()[-1].total_steps) == (30, 30)
    assert lead.summaries()[-1].metrics["loss"] == losses[30]
    assert "on 2 devices" in single.log()
    told = lead.facts()
    assert (told["replicas_in_sync"], told["communication"], told["gang"]) == (2, "RING over gRPC", {"worker": 2})
    assert told["keras"].startswith("tf_keras 2." if keras is Keras.TF_KERAS else "keras 3.")
    assert told["memory_bytes"] > 100e6
    assert single.facts()["communication"] == "CollectiveAllReduce"
    assert [name.rpartition("device:")[2] for name in single.facts()["devices"]] == ["CPU:0", "CPU:1"]
    assert list(single.series("loss")) == list(range(1, 49))
    assert single.summaries()[-1].metrics == {"loss": single.series("loss")[48]}


def test_what_fails_bare_shows_its_own_error_and_hangs_nobody(tmp_path: Path, keras3: Zygote) -> None:
    """Keras 3's fit has no parameter servers."""
    job = script(
        tmp_path, SCRIPTS / "parameter_server_fit.py", Strategy.PARAMETER_SERVER, workers=1, ps=1, keras=Keras.KERAS3
    )
    job.start(keras3).wait(90, names=["chief:0"])
    job.stop()
    job.wait(20)
    failure = job["chief:0"].failure()
    assert failure.cause is Cause.EXCEPTION
    assert "(in parameter_server_fit.py, line 2" in failure.message
    assert "launcher.py" not in job["chief:0"].log()


PLAIN = """
    import atexit, os, subprocess, sys, threading, time
    import helper
    import keras, tensorflow as tf

    print("argv", sys.argv, "name", __name__, "cwd", os.path.basename(os.getcwd()))
    print("first", os.path.samefile(sys.path[0], os.path.dirname(__file__)), helper.WORD)
    print("keras", keras.__name__, keras.__version__[0], "tf.keras", tf.keras.layers.Dense.__module__)
    print("job", os.environ["TRAINYARD_ROLE"], os.environ["TMPDIR"].endswith("scratch"))
    atexit.register(print, "at exit")
    threading.Thread(target=lambda: (time.sleep(0.3), print("thread ended"))).start()
    child = "import trainyard; trainyard.log(7, found=0.5)"
    subprocess.run([sys.executable, "-c", child], check=True)
    sleeper = subprocess.Popen(["sleep", "60"])
    sleeper.terminate()
    print("child", sleeper.wait(5))
    sys.exit(int(sys.argv[-1]))
"""


@pytest.mark.parametrize("keras", list(Keras))
def test_a_program_is_run_as_python_runs_it(keras: Keras, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    jobs = [
        script(tmp_path / name, PLAIN, keras=keras, arguments=["--x", status], working_dir="data")
        for name, status in (("well", "0"), ("badly", "3"))
    ]
    for job in jobs:
        code = Path(job.members[0].plan.code)
        (code / "helper.py").write_text("WORD = 'helped'\n")
        (code / "data").mkdir()
        job.start(flavoured(request, keras))
    for job in jobs:
        job.wait(90)
    well, badly = (job.members[0] for job in jobs)
    assert completed(well)
    assert badly.exit().cause is Cause.EXIT_CODE
    assert badly.exit().code == 3
    text = well.log()
    assert "argv ['../main.py', '--x', '0'] name __main__ cwd data\n" in text
    assert "first True helped\n" in text
    # `import keras` is Keras 3 wherever tf.keras points: nothing is renamed for a script.
    assert f"keras keras 3 tf.keras {'tf_keras' if keras is Keras.TF_KERAS else 'keras'}.src." in text
    assert "job worker:0 True\n" in text
    assert text.index("thread ended") < text.index("at exit")
    assert f"child {-signal.SIGTERM}\n" in text
    assert well.series("found") == {7: 0.5}


def test_faults_of_a_program_are_its_own(tmp_path: Path, keras3: Zygote) -> None:
    raising = script(
        tmp_path / "raising",
        """
        def inner():
            raise KeyError("no such column")

        inner()
        """,
    )
    broken = script(tmp_path / "broken", "print(\n")
    graph = script(
        tmp_path / "graph",
        """
        import tensorflow as tf

        @tf.function
        def f(x):
            tf.debugging.assert_less(x, 1.0, message="too large")
            return x

        f(tf.constant(2.0))
        """,
    )
    for job in (raising, broken, graph):
        job.start(keras3)
    for job in (raising, broken, graph):
        job.wait(60)
    lead = raising["worker:0"]
    assert lead.failure().message == "KeyError: 'no such column' (in main.py, line 3, inner)"
    assert lead.log().count("Traceback") == 1
    assert "launcher.py" not in lead.log()
    assert broken["worker:0"].failure().message == "main.py, line 1: syntax error: '(' was never closed."
    assert "too large" in graph["worker:0"].failure().message
    assert "(in main.py, line 9, <module>)" in graph["worker:0"].failure().message


def test_a_stop_reaches_a_script_though_tensorflow_swallows_it(tmp_path: Path, keras3: Zygote) -> None:
    waiting = """
        import time
        import tensorflow as tf
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        print("ready", flush=True)
        time.sleep(600)
    """
    job = script(tmp_path, waiting, Strategy.MULTI_WORKER_MIRRORED, workers=2).start(keras3)
    wait_until(lambda: all("ready" in member.log() for member in job.members), 60, "the strategy is there")
    began = time.monotonic()
    job.stop()
    job.wait(10)
    assert time.monotonic() - began < 8
    for member in job.members:
        assert member.exit().cause is Cause.STOPPED
        assert "killed" not in member.exit().message


def test_a_script_may_handle_the_signal_itself(tmp_path: Path, keras3: Zygote) -> None:
    handling = """
        import signal, sys, time
        import trainyard

        def save(*_):
            time.sleep(1.5)
            print("saved", flush=True)
            sys.exit(0)

        signal.signal(signal.SIGTERM, save)
        trainyard.log(1, loss=1.0)
        print("ready", flush=True)
        time.sleep(600)
    """
    job = script(tmp_path, handling).start(keras3)
    lead = job["worker:0"]
    wait_until(lambda: "ready" in lead.log(), 60, "it runs")
    job.stop()
    job.wait(10)
    assert "saved\n" in lead.log()
    assert lead.exit().cause is Cause.STOPPED, "it left because it was asked to, not at its end"


def test_a_worker_that_dies_early_is_not_waited_for(tmp_path: Path, keras3: Zygote) -> None:
    """Before TensorFlow has met: the other one is ended by the agent, and a peer that never comes is named."""
    job = script(tmp_path, "print('never runs')", Strategy.MULTI_WORKER_MIRRORED, workers=2, rendezvous_timeout_s=2.0)
    job.start(keras3, without="worker:1").wait(20, names=["worker:0"])
    assert job["worker:0"].exit().cause is Cause.RENDEZVOUS_TIMEOUT
    assert "worker:1 (127.0.0.1:" in job["worker:0"].failure().message
    assert "never runs" not in job["worker:0"].log()


def test_a_module_that_is_not_installed_is_named(tmp_path: Path, keras3: Zygote) -> None:
    programs = {
        "no_such_package": "import no_such_package.part",
        "within": "import json.no_such_part",
        "own": "raise ModuleNotFoundError('nothing was imported')",
    }
    jobs = {name: script(tmp_path / name, text) for name, text in programs.items()}
    for job in jobs.values():
        job.start(keras3)
    for job in jobs.values():
        job.wait(60)
    missing = {name: job.members[0].exit().ending.missing for name, job in jobs.items()}
    assert missing == {"no_such_package": "no_such_package", "within": "", "own": ""}


def wheel(folder: Path) -> None:
    """A package of one line, as an index would give it."""
    folder.mkdir()
    info = "trainyard_probe-1.0.dist-info"
    with zipfile.ZipFile(folder / "trainyard_probe-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("trainyard_probe.py", "VALUE = 42\n")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: trainyard-probe\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


def test_requirements_are_installed_once_and_kept(tmp_path: Path, keras3: Zygote) -> None:
    wheel(tmp_path / "index")
    index = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "index")}
    using = """
        import subprocess, sys
        import trainyard_probe
        print("value", trainyard_probe.VALUE)
        subprocess.run([sys.executable, "-c", "import trainyard_probe"], check=True)
    """
    jobs = [
        script(tmp_path / name, using, requirements="trainyard-probe>=1\nnumpy  # is there already\n", env=index)
        for name in ("first", "second")
    ]
    missing = script(tmp_path / "missing", using, requirements="trainyard-no-such-package", env=index)
    refused = script(tmp_path / "refused", using, requirements="--requirement other.txt", env=index)
    for job in (*jobs, missing, refused):
        member = job.members[0]
        plan = msgspec.structs.replace(member.plan, environments=str(tmp_path / "packages"))
        (Path(plan.folder) / "plan.json").write_bytes(codec.encode_plan(plan))
        job.start(keras3)
    for job in (*jobs, missing, refused):
        job.wait(90)
    for job in jobs:
        assert completed(job.members[0])
        assert "value 42\n" in job.members[0].log()
        assert job.members[0].phases()[0] == "installing"
    assert sum("1 package ready" in job.members[0].log() for job in jobs) == 1
    assert "No matching distribution found for trainyard-no-such-package" in missing.members[0].failure().message
    assert "options, addresses and paths are not taken" in refused.members[0].failure().message


def test_a_script_that_sets_the_environment_of_libraries_starts_cold(tmp_path: Path, keras3: Zygote) -> None:
    setting = """
        import os
        os.environ["TF_USE_LEGACY_KERAS"] = "1"
        import tensorflow as tf
        print("keras", tf.keras.layers.Dense.__module__)
    """
    job = script(tmp_path, setting).start(keras3)
    job.wait(120)
    assert completed(job["worker:0"])
    assert "keras tf_keras." in job["worker:0"].log()


def test_a_killed_worker_ends_the_wait_of_the_others(tmp_path: Path, keras3: Zygote) -> None:
    """The program's own error says that a peer went away."""
    job = script(
        tmp_path,
        SCRIPTS / "keras_multi_worker.py",
        Strategy.MULTI_WORKER_MIRRORED,
        workers=2,
        arguments=["--epochs", "100000"],
    ).start(keras3)
    wait_until(lambda: all(member.series("loss") for member in job.members), 60, "both train")
    os.kill(read_shim_state(Path(job["worker:1"].plan.folder)).child_pid, signal.SIGKILL)
    job.wait(40)
    assert job["worker:0"].exit().cause in (Cause.EXCEPTION, Cause.SIGNAL)
