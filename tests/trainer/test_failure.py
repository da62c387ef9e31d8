"""Exceptions in words."""

import socket
from pathlib import Path
from typing import Any

import pytest

from worker_agent.protocol.causes import Blame
from worker_agent.protocol.ending import Ending, digest_of
from worker_agent.protocol.states import Cause
from worker_agent.trainer.failure import failure_of
from worker_agent.trainer.loop.training_report import not_finite
from worker_agent.trainer.outcome import ExitCode, TrainingFailed, code_of


def raised(error: Exception) -> Exception:
    with pytest.raises(type(error)) as caught:
        raise error
    return caught.value


def raised_in(file: Path, text: str, function: str) -> BaseException:
    """What `function` raises, of a program with this text in this file."""
    file.write_text(text)
    scope: dict[str, Any] = {}
    exec(compile(text, str(file), "exec"), scope)
    with pytest.raises(Exception) as caught:  # noqa: PT011  which one, the test says
        scope[function]()
    return caught.value


def test_the_users_own_line_is_named(tmp_path: Path) -> None:
    text = "def build_model():\n    return {}['units']\n"
    failure = failure_of(raised_in(tmp_path / "recipe.py", text, "build_model"), code=tmp_path, gang_size=1)
    assert failure.message == "KeyError: 'units' (in recipe.py, line 2, build_model)"
    assert failure.cause is Cause.EXCEPTION
    assert "Traceback" in failure.traceback


def test_what_another_process_answered_is_told_with_its_reason(tmp_path: Path) -> None:
    text = """class NotFoundError(Exception): ...

def main():
    raise NotFoundError("From /job:ps/replica:0/task:0:\\nckpt/model_temp; No such file or directory")
"""
    failure = failure_of(raised_in(tmp_path / "train.py", text, "main"), code=tmp_path, gang_size=3)
    said = "From /job:ps/replica:0/task:0: ckpt/model_temp; No such file or directory"
    assert failure.message == f"NotFoundError: {said} (in train.py, line 4, main)"


def test_the_name_that_may_have_been_meant_is_told(tmp_path: Path) -> None:
    text = "class Metric:\n    def reset_state(self): ...\n\ndef main():\n    Metric().reset_states()\n"
    failure = failure_of(raised_in(tmp_path / "train.py", text, "main"), code=tmp_path, gang_size=1)
    said = "AttributeError: 'Metric' object has no attribute 'reset_states'. Did you mean: 'reset_state'?"
    assert failure.message == f"{said} (in train.py, line 5, main)"
    assert failure.traceback.endswith(f"{said}\n")


def test_what_tensorflow_tells_of_traced_code_is_taken_apart(tmp_path: Path) -> None:
    frame = f'    File "{tmp_path}/recipe.py", line 9, in call  *\n        x + y\n'
    text = f"in user code:\n\n{frame}\n    ValueError: shapes differ\n"
    failure = failure_of(raised(ValueError(text)), code=tmp_path, gang_size=1)
    assert failure.message == "ValueError: shapes differ (in recipe.py, line 9, call)"


@pytest.fixture(scope="module")
def tf() -> Any:
    """TensorFlow itself, for the tests marked so."""
    return pytest.importorskip("tensorflow")


@pytest.mark.tf
@pytest.mark.usefixtures("tf")
def test_a_folder_that_the_processes_do_not_share_is_told_with_a_remedy(tmp_path: Path) -> None:
    text = """from tensorflow.errors import NotFoundError

def main(path):
    raise NotFoundError(None, None, "Graph execution error:\\n\\nDetected at node save/SaveV2 defined at:"
        "\\nNode: 'save/SaveV2'\\nFrom /job:ps/replica:0/task:0:\\n" + path + "; No such file or directory\\n")

def own(): main("./ckpt/model.ckpt-0_temp")

def shared(): main("/ckpt/model.ckpt-0_temp")
"""
    own, shared = (
        failure_of(raised_in(tmp_path / "train.py", text, name), code=tmp_path, gang_size=3)
        for name in ("own", "shared")
    )
    assert "From /job:ps/replica:0/task:0: ./ckpt/model.ckpt-0_temp; No such file or directory" in own.message
    assert own.ending is not None
    assert "TRAINYARD_SHARED_FOLDER" in own.ending.remedy
    assert shared.ending is not None
    assert shared.ending.remedy == ""


UNHEALTHY = (
    "Collective ops is aborted by: Error reported from /job:worker/task:2: The following tasks are unhealthy "
    "(stopped sending heartbeats):\n/job:worker/replica:0/task:2\n/job:worker/replica:0/task:1\n"
    "The tasks have crashed. Check the task logs for an earlier error."
)


@pytest.mark.tf
@pytest.mark.parametrize(
    ("kind", "text", "lost_peer", "silent"),
    [
        ("UnavailableError", "Connection reset by peer\nmore", True, False),
        ("AbortedError", "any words", True, False),
        ("CancelledError", "any words", True, False),
        ("DeadlineExceededError", "any words", True, True),
        ("UnavailableError", UNHEALTHY, True, True),
        ("InternalError", "recvmsg:Connection reset by peer", True, False),
        ("InternalError", "libdevice not found", False, False),
        ("InvalidArgumentError", "the collective was cancelled: its peer is unavailable", False, False),
    ],
)
def test_a_lost_peer_is_known_by_tensorflows_own_errors(
    tmp_path: Path, tf: Any, kind: str, text: str, lost_peer: bool, silent: bool
) -> None:
    error = raised(getattr(tf.errors, kind)(None, None, text))
    failure = failure_of(error, code=tmp_path, gang_size=2)
    assert failure.ending
    assert (failure.ending.lost_peer, failure.ending.silent) == (lost_peer, silent)
    assert failure.message.startswith(f"A peer went away: {kind}: " if lost_peer else f"{kind}: ")
    assert (failure.ending.exception, failure.ending.module) == (kind, "tensorflow.python.framework.errors_impl")
    alone = failure_of(error, code=tmp_path, gang_size=1)
    assert alone.message.startswith(kind)
    assert not alone.ending.lost_peer  # type: ignore[union-attr]


@pytest.mark.tf
@pytest.mark.parametrize("is_replaced", [True, False])
def test_an_error_raised_from_a_lost_peer_or_in_its_place_says_that_it_was_lost(
    tmp_path: Path, tf: Any, is_replaced: bool
) -> None:
    def train() -> None:
        try:
            raise tf.errors.UnavailableError(None, None, "Socket closed")
        except tf.errors.OpError as error:
            raise RuntimeError("in layer") from None if is_replaced else error

    with pytest.raises(RuntimeError) as caught:
        train()
    assert failure_of(caught.value, code=tmp_path, gang_size=2).ending.lost_peer  # type: ignore[union-attr]


class UnavailableError(Exception):
    """Named as TensorFlow names its own, and of another module."""


@pytest.mark.parametrize(
    "error",
    [
        ValueError("unknown collective 'ring2'"),
        ValueError("the order was cancelled: peer unavailable, heartbeat, coordination service"),
        UnavailableError("Socket closed"),
        ConnectionResetError("Connection reset by peer"),
        TimeoutError("Deadline Exceeded"),
    ],
)
def test_words_of_the_programs_own_are_no_lost_peer(tmp_path: Path, error: Exception) -> None:
    failure = failure_of(raised(error), code=tmp_path, gang_size=2)
    assert failure.ending == Ending(
        cause=Cause.EXCEPTION,
        exception=type(error).__name__,
        module=type(error).__module__,
        digest=digest_of(failure.message),
    )
    assert failure.ending.blame is Blame.PROGRAM


def test_the_same_error_is_told_from_another_by_its_digest(tmp_path: Path) -> None:
    def digest(error: Exception) -> str:
        return failure_of(raised(error), code=tmp_path, gang_size=1).ending.digest  # type: ignore[union-attr]

    assert digest(ValueError("bad")) == digest(ValueError("bad"))
    assert len({digest(error) for error in (ValueError("bad"), ValueError("worse"), TypeError("bad"))}) == 3


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (MemoryError("Unable to allocate 71.1 PiB for an array"), Cause.OUT_OF_MEMORY),
        (ValueError("out of memory"), Cause.EXCEPTION),
    ],
)
def test_what_asks_for_too_much_memory_ran_out_of_it(tmp_path: Path, error: Exception, cause: Cause) -> None:
    assert failure_of(raised(error), code=tmp_path, gang_size=1).cause is cause


@pytest.mark.tf
def test_tensorflow_says_what_it_could_not_allocate(tmp_path: Path, tf: Any) -> None:
    with pytest.raises(tf.errors.ResourceExhaustedError) as caught:
        tf.fill([2**45], 1.0)
    failure = failure_of(caught.value, code=tmp_path, gang_size=1)
    assert failure.cause is Cause.OUT_OF_MEMORY
    assert "function_node" not in failure.message
    large = raised(tf.errors.ResourceExhaustedError(None, None, "Received message larger than max (5 vs. 4)"))
    assert failure_of(large, code=tmp_path, gang_size=1).cause is Cause.EXCEPTION


def test_an_error_in_python_that_a_pipeline_calls_is_told_as_the_users(tmp_path: Path) -> None:
    text = (
        "{{function_node __wrapped__IteratorGetNext_device_/job:localhost/replica:0/task:0/device:CPU:0}} "
        "ValueError: row 17 has no label\nTraceback (most recent call last):\n\n"
        '  File "/site-packages/tensorflow/script_ops.py", line 269, in __call__\n    ret = func(*args)\n\n'
        f'  File "{tmp_path}/recipe.py", line 4, in rows\n    raise ValueError("row 17 has no label")\n\n'
        "ValueError: row 17 has no label\n\n\n\t [[{{node PyFunc}}]] [Op:IteratorGetNext] name: "
    )
    failure = failure_of(raised(UnavailableError(text)), code=tmp_path, gang_size=1)
    assert failure.message == "ValueError: row 17 has no label (in recipe.py, line 4, rows)"


@pytest.mark.parametrize(
    "text",
    [
        "Exception encountered when calling L.call().\n\n\x1b[1mInput 0 is incompatible\x1b[0m\n\nArguments received",
        "Exception encountered when calling L.call().\n\n\x1b[1mCould not automatically infer the output shape. Either "
        "mend it or write it. Error encountered:\n\nInput 0 is incompatible\x1b[0m\n\nArguments received by L.call():",
    ],
)
def test_keras_says_where_first_and_why_then(tmp_path: Path, text: str) -> None:
    failure = failure_of(raised(ValueError(text)), code=tmp_path, gang_size=1)
    assert failure.message == "ValueError: Input 0 is incompatible"


@pytest.mark.tf
def test_who_answers_no_more_is_named(tmp_path: Path, tf: Any) -> None:
    error = raised(tf.errors.UnavailableError(None, None, UNHEALTHY))
    failure = failure_of(error, code=tmp_path, gang_size=3)
    assert failure.message == "A peer went away: UnavailableError: worker 1 and worker 2 stopped sending heartbeats"


def test_the_trainers_own_sentences_stand_by_themselves(tmp_path: Path) -> None:
    error = raised(TrainingFailed("The port is taken.", Cause.PORT_TAKEN))
    failure = failure_of(error, code=tmp_path, gang_size=2)
    assert (failure.cause, failure.message, failure.traceback) == (Cause.PORT_TAKEN, "The port is taken.", "")


@pytest.mark.tf
def test_a_port_stolen_under_tensorflow_is_a_port_taken(tmp_path: Path, tf: Any) -> None:
    with socket.create_server(("0.0.0.0", 0)) as taken:
        cluster = {"worker": [f"127.0.0.1:{taken.getsockname()[1]}"]}
        with pytest.raises(tf.errors.OpError) as caught:
            tf.distribute.Server(cluster, job_name="worker", task_index=0)
    assert failure_of(caught.value, code=tmp_path, gang_size=2).cause is Cause.PORT_TAKEN


def test_what_no_database_takes_is_left_out(tmp_path: Path) -> None:
    assert failure_of(raised(ValueError("a\0b")), code=tmp_path, gang_size=1).message == "ValueError: ab"


def test_endless_messages_are_cut(tmp_path: Path) -> None:
    failure = failure_of(raised(ValueError("x" * 10_000_000)), code=tmp_path, gang_size=1)
    assert len(failure.message) < 1000
    assert len(failure.traceback) <= 100_000


def test_causes_have_statuses() -> None:
    assert code_of(Cause.LOSS_NOT_FINITE) == ExitCode.LOSS_NOT_FINITE
    assert code_of(Cause.TIME_LIMIT) == ExitCode.EXCEPTION
    assert not_finite(float("nan"), step=7, epoch=2).message == "The loss became NaN at step 7 (epoch 2)."
    assert not_finite(float("-inf"), step=7, epoch=2).cause is Cause.LOSS_NOT_FINITE
