"""Exceptions in words."""

from pathlib import Path

import pytest

from worker_agent.protocol.states import Cause
from worker_agent.trainer.failure import failure_of
from worker_agent.trainer.loop.voice import not_finite
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
