"""Examples of programs in one process each: one device, central storage, and a TPU that is not there."""

from pathlib import Path

import pytest

from tests.trainer.gang import free_ports
from tests.trainer.script.test_scripts import SCRIPTS, completed, flavoured, script
from worker_agent.protocol.states import Cause, Keras, Strategy

pytestmark = pytest.mark.tf


@pytest.mark.parametrize("keras", list(Keras))
def test_one_device_and_central_storage(keras: Keras, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """And a TPU that is not there: the program's error, in words that say what to do; or the address that is silent."""
    zygote = flavoured(request, keras)
    silent = f"grpc://127.0.0.1:{free_ports(1)[0]}"
    programs = [
        ("one_device_fit.py", Strategy.ONE_DEVICE, {}),
        ("central_storage_loop.py", Strategy.CENTRAL_STORAGE, {"devices": 2}),
        ("tpu_fit.py", Strategy.TPU, {"tpu": "local"}),
        ("tpu_fit.py", Strategy.TPU, {"tpu": silent, "rendezvous_timeout_s": 0.2}),
    ]
    jobs = [
        script(tmp_path / str(number), SCRIPTS / name, strategy, keras=keras, **given).start(zygote)
        for number, (name, strategy, given) in enumerate(programs)
    ]
    for job in jobs:
        job.wait(90)
    fit, loop, tpu, unreached = (job["worker:0"] for job in jobs)
    assert completed(fit)
    assert completed(loop)
    assert [summary.epoch for summary in fit.summaries()] == [1, 2, 3]
    assert "val_accuracy" in fit.summaries()[-1].metrics
    losses = loop.series("loss")
    assert list(losses) == list(range(1, 41))
    assert losses[40] < losses[1] / 2
    assert "on 2 devices" in loop.log()
    assert loop.facts()["communication"] == "through CPU:0"
    assert "The TPU local cannot be used" in tpu.failure().message
    assert "check its name" in tpu.failure().message
    assert unreached.failure().message.startswith(f"The TPU {silent} did not answer within 0.2 s (connection refused)")
    assert unreached.exit().cause is Cause.LAUNCH_REFUSED, "nothing is launched again for it"
    assert "Traceback" not in unreached.log()
