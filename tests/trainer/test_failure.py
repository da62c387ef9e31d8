"""Exceptions in words."""

from pathlib import Path

import pytest

from worker_agent.protocol.states import Cause
from worker_agent.trainer.failure import failure_of
from worker_agent.trainer.loop.training_report import not_finite
from worker_agent.trainer.outcome import ExitCode, TrainingFailed, code_of


class UnavailableError(Exception):
    """Named as TensorFlow names it."""


def raised(error: Exception) -> Exception:
    with pytest.raises(type(error)) as caught:
        raise error
    return caught.value


def test_the_users_own_line_is_named(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.py"
    recipe.write_text("def build_model():\n    return {}['units']\n")
    scope: dict[str, object] = {}
    exec(compile(recipe.read_text(), str(recipe), "exec"), scope)
    with pytest.raises(KeyError) as caught:
        scope["build_model"]()  # type: ignore[operator]
    failure = failure_of(caught.value, code=tmp_path, gang_size=1)
    assert failure.message == "KeyError: 'units' (in recipe.py, line 2, build_model)"
    assert failure.cause is Cause.EXCEPTION
    assert "Traceback" in failure.traceback


def test_what_tensorflow_tells_of_traced_code_is_taken_apart(tmp_path: Path) -> None:
    frame = f'    File "{tmp_path}/recipe.py", line 9, in call  *\n        x + y\n'
    text = f"in user code:\n\n{frame}\n    ValueError: shapes differ\n"
    failure = failure_of(raised(ValueError(text)), code=tmp_path, gang_size=1)
    assert failure.message == "ValueError: shapes differ (in recipe.py, line 9, call)"


def test_a_lost_peer_is_a_consequence_only_within_a_gang(tmp_path: Path) -> None:
    error = raised(UnavailableError("Connection reset by peer\nmore"))
    assert failure_of(error, code=tmp_path, gang_size=2).message == (
        "A peer went away: UnavailableError: Connection reset by peer"
    )
    assert failure_of(error, code=tmp_path, gang_size=1).message.startswith("UnavailableError")


class ResourceExhaustedError(Exception):
    """Named as TensorFlow names it."""


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (MemoryError("Unable to allocate 71.1 PiB for an array"), Cause.OUT_OF_MEMORY),
        (
            ResourceExhaustedError("{{function_node __wrapped__Fill}} OOM when allocating tensor with shape[9]"),
            Cause.OUT_OF_MEMORY,
        ),
        (ResourceExhaustedError("Received message larger than max (5 vs. 4)"), Cause.EXCEPTION),
        (ValueError("out of memory"), Cause.EXCEPTION),
    ],
)
def test_what_asks_for_too_much_memory_ran_out_of_it(tmp_path: Path, error: Exception, cause: Cause) -> None:
    failure = failure_of(raised(error), code=tmp_path, gang_size=1)
    assert failure.cause is cause
    assert "function_node" not in failure.message


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


def test_who_answers_no_more_is_named(tmp_path: Path) -> None:
    text = (
        "Collective ops is aborted by: Error reported from /job:worker/task:2: The following tasks are unhealthy "
        "(stopped sending heartbeats):\n/job:worker/replica:0/task:2\n/job:worker/replica:0/task:1\n"
        "The tasks have crashed. Check the task logs for an earlier error."
    )
    failure = failure_of(raised(ConnectionError(f"{text} Socket closed")), code=tmp_path, gang_size=3)
    assert failure.message == ("A peer went away: ConnectionError: worker 1 and worker 2 stopped sending heartbeats")


def test_the_trainers_own_sentences_stand_by_themselves(tmp_path: Path) -> None:
    error = raised(TrainingFailed("The port is taken.", Cause.PORT_TAKEN))
    failure = failure_of(error, code=tmp_path, gang_size=2)
    assert (failure.cause, failure.message, failure.traceback) == (Cause.PORT_TAKEN, "The port is taken.", "")


def test_a_port_stolen_under_tensorflow_is_a_port_taken(tmp_path: Path) -> None:
    error = raised(RuntimeError("UNKNOWN: Could not start gRPC server"))
    assert failure_of(error, code=tmp_path, gang_size=2).cause is Cause.PORT_TAKEN


def test_endless_messages_are_cut(tmp_path: Path) -> None:
    failure = failure_of(raised(ValueError("x" * 10_000_000)), code=tmp_path, gang_size=1)
    assert len(failure.message) < 1000
    assert len(failure.traceback) <= 100_000


def test_causes_have_statuses() -> None:
    assert code_of(Cause.LOSS_NOT_FINITE) == ExitCode.LOSS_NOT_FINITE
    assert code_of(Cause.TIME_LIMIT) == ExitCode.EXCEPTION
    assert not_finite(float("nan"), step=7, epoch=2).message == "The loss became NaN at step 7 (epoch 2)."
    assert not_finite(float("-inf"), step=7, epoch=2).cause is Cause.LOSS_NOT_FINITE
