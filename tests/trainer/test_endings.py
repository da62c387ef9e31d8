"""How trainings end when they do not end well: real processes, each with the right cause in words."""

import os
import signal
import socket
import time
from pathlib import Path

import pytest

from tests.trainer.gang import Gang, Zygote, gang
from tests.waiting import wait_until
from worker_agent.protocol.causes import Blame
from worker_agent.protocol.ending import Ending, Sender, digest_of
from worker_agent.protocol.records import Started, Stream
from worker_agent.protocol.states import Cause, Kind, Strategy
from worker_agent.replica.folder import read_shim_state
from worker_agent.trainer.outcome import ExitCode

pytestmark = pytest.mark.tf

TINY = Path(__file__).parent / "recipes/tiny.py"
LONG = 100_000


def pair(folder: Path, **given: object) -> Gang:
    return gang(folder, TINY, Strategy.MULTI_WORKER_MIRRORED, workers=2, **given)  # type: ignore[arg-type]


def until_training(job: Gang) -> None:
    wait_until(lambda: all(member.progress() for member in job.members), 60, "every worker trains")


def test_sigterm_ends_a_gang_in_seconds(tmp_path: Path, keras3: Zygote) -> None:
    job = pair(tmp_path, epochs=LONG).start(keras3)
    until_training(job)
    began = time.monotonic()
    job.stop()
    job.wait(10)
    assert time.monotonic() - began < 4
    for member in job.members:
        assert member.exit().code == ExitCode.STOPPED
        assert member.failure() is None


def test_a_killed_peer_is_told_apart_from_a_fault_of_ones_own(tmp_path: Path, keras3: Zygote) -> None:
    job = pair(tmp_path, epochs=LONG).start(keras3)
    until_training(job)
    state = read_shim_state(Path(job["worker:1"].plan.folder))
    os.kill(state.child_pid, signal.SIGKILL)
    job.wait(30)
    assert job["worker:1"].exit().ending == Ending(cause=Cause.SIGNAL, signal=9, sender=Sender.OUTSIDE)
    told = job["worker:0"].exit()
    assert (told.cause, told.ending.blame, told.ending.exception) == (Cause.EXCEPTION, Blame.PEER, "UnavailableError")
    assert told.ending.digest == digest_of(told.message)
    assert told.message.startswith("A peer went away: ")


def test_a_suspended_peer_is_silent(tmp_path: Path, keras3: Zygote) -> None:
    job = pair(tmp_path, epochs=LONG).start(keras3)
    until_training(job)
    state = read_shim_state(Path(job["worker:0"].plan.folder))
    os.kill(state.child_pid, signal.SIGSTOP)
    job.wait(60, names=["worker:1"])
    os.kill(state.child_pid, signal.SIGKILL)
    job.wait(20)
    told = job["worker:1"].exit().ending
    assert (told.cause, told.blame, told.silent) == (Cause.EXCEPTION, Blame.PEER, True)


CATCHES = """
import os, sys, time
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
@tf.function
def together():
    return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.constant(1.0)))
together()
print("met", flush=True)
try:
    while True:
        together()
        time.sleep(0.05)
except tf.errors.OpError:
    {leave}
"""


@pytest.mark.parametrize(
    ("leave", "cause", "blame"),
    [("os.abort()", Cause.SIGNAL, Blame.PEER), ("sys.exit(3)", Cause.EXIT_CODE, Blame.PROGRAM)],
)
def test_of_a_script_that_says_nothing_tensorflows_own_words_tell_that_it_lost_a_peer(
    leave: str, cause: Cause, blame: Blame, tmp_path: Path, keras3: Zygote
) -> None:
    program = tmp_path / "catches.py"
    program.write_text(CATCHES.format(leave=leave))
    job = gang(tmp_path / "job", program, Strategy.MULTI_WORKER_MIRRORED, workers=2, program=Kind.SCRIPT).start(keras3)
    wait_until(lambda: all("met" in member.log() for member in job.members), 90, "both have met")
    os.kill(read_shim_state(Path(job["worker:0"].plan.folder)).child_pid, signal.SIGKILL)
    job.wait(60)
    told = job["worker:1"].exit().ending
    assert (told.cause, told.lost_peer, told.blame) == (cause, True, blame), told.last_lines


def test_a_peer_that_never_starts_is_named(tmp_path: Path, keras3: Zygote) -> None:
    """Both sides at once: worker 0 without worker 1, and worker 1 without worker 0."""
    left = pair(tmp_path / "left", rendezvous_timeout_s=2.0).start(keras3, without="worker:1")
    right = pair(tmp_path / "right", rendezvous_timeout_s=2.0).start(keras3, without="worker:0")
    left.wait(20, names=["worker:0"])
    right.wait(20, names=["worker:1"])
    for there, missing in ((left["worker:0"], "worker:1"), (right["worker:1"], "worker:0")):
        assert there.exit().cause is Cause.RENDEZVOUS_TIMEOUT
        assert there.exit().code == ExitCode.RENDEZVOUS_TIMEOUT
        assert f"{missing} (127.0.0.1:" in there.failure().message


def test_sigterm_ends_the_wait_for_a_peer(tmp_path: Path, keras3: Zygote) -> None:
    job = pair(tmp_path).start(keras3, without="worker:1")
    wait_until(lambda: "rendezvous" in job["worker:0"].phases(), 20, "worker 0 waits")
    job["worker:0"].stop()
    job.wait(5, names=["worker:0"])
    assert job["worker:0"].exit().cause is Cause.STOPPED


def test_a_missing_worker_of_parameter_servers_is_named(tmp_path: Path, tf_keras: Zygote) -> None:
    job = gang(tmp_path, TINY, Strategy.PARAMETER_SERVER, workers=1, ps=1, rendezvous_timeout_s=3.0)
    job.start(tf_keras, without="worker:0")
    job.wait(20, names=["chief:0"])
    job.stop()
    job.wait(5, names=["ps:0"])
    assert job["chief:0"].exit().cause is Cause.RENDEZVOUS_TIMEOUT
    assert "worker:0 (127.0.0.1:" in job["chief:0"].failure().message
    assert "ps:0" not in job["chief:0"].failure().message


def test_a_taken_port_is_told_before_tensorflow_starts(tmp_path: Path, keras3: Zygote) -> None:
    job = pair(tmp_path)
    with socket.create_server(("127.0.0.1", job["worker:0"].plan.launch.port)):
        job.start(keras3, without="worker:1").wait(10, names=["worker:0"])
    assert job["worker:0"].exit().cause is Cause.PORT_TAKEN
    assert job["worker:0"].exit().code == ExitCode.PORT_TAKEN


def test_a_loss_that_is_not_a_number_names_its_step(tmp_path: Path, keras3: Zygote) -> None:
    job = gang(tmp_path, TINY, Strategy.ONE_DEVICE, params={"fault": "nan"}).start(keras3)
    job.wait(60)
    lead = job["worker:0"]
    assert lead.exit().cause is Cause.LOSS_NOT_FINITE
    assert lead.exit().code == ExitCode.LOSS_NOT_FINITE
    losses = lead.series("loss")
    step = next(step for step, loss in losses.items() if loss != loss)
    assert f"at step {step} " in lead.failure().message


@pytest.mark.parametrize(
    ("params", "global_batch_size", "message"),
    [
        ({"fault": "model"}, 64, "ValueError: no such layer (in tiny.py, line 24, build_model)"),
        ({"fault": "uncompiled"}, 64, "not compiled"),
        ({"fault": "data"}, 64, "returned list, not a tf.data.Dataset"),
        ({"rows": 30}, 64, "The training set has 30 rows, fewer than the global batch of 64: choose a smaller batch"),
        ({"nonsense": 1}, 64, "The recipe's parameters are: clip, dropout, fault, lr, patience, rows, width."),
    ],
)
def test_mistakes_of_a_recipe_are_said_in_one_sentence(
    params: dict[str, object], global_batch_size: int, message: str, tmp_path: Path, keras3: Zygote
) -> None:
    job = gang(tmp_path, TINY, Strategy.ONE_DEVICE, params=params, global_batch_size=global_batch_size)
    job.start(keras3).wait(60)
    assert job["worker:0"].exit().cause is Cause.EXCEPTION
    assert job["worker:0"].exit().code == ExitCode.EXCEPTION
    assert message in job["worker:0"].failure().message


def test_an_environment_that_counts_at_import_starts_cold(tmp_path: Path, keras3: Zygote) -> None:
    job = gang(tmp_path, TINY, Strategy.ONE_DEVICE, epochs=1, env={"TF_DETERMINISTIC_OPS": "1"}).start(keras3)
    job.wait(120)
    started = next(record for record in job["worker:0"].said(Stream.SHIM) if isinstance(record, Started))
    assert not started.warm
    assert job["worker:0"].exit().cause is Cause.COMPLETED


def test_a_syntax_error_costs_no_tensorflow(tmp_path: Path, keras3: Zygote) -> None:
    recipe = tmp_path / "broken.py"
    recipe.write_text("def build_model(params):\n    return (\n")
    job = gang(tmp_path / "job", recipe, Strategy.ONE_DEVICE).start(keras3)
    job.wait(10)
    assert job["worker:0"].failure().message == "broken.py, line 2: syntax error: '(' was never closed."
    assert job["worker:0"].phases() == []
