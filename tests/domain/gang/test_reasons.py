"""Why a replica ended, in words."""

import pytest

from orchestrator.domain.gang.reasons import adding, listed, reason_of
from tests.domain.gang.gangs import ended
from worker_agent.protocol.states import Cause


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"cause": Cause.SIGNAL, "signal": 9}, "worker 1 on node-2 was killed by signal 9 (SIGKILL)."),
        (
            {"cause": Cause.PREEMPTED, "signal": 15, "message": "It was ended by a SIGTERM."},
            "worker 1 on node-2 got a SIGTERM from outside: It was ended by a SIGTERM.",
        ),
        ({"cause": Cause.SIGNAL, "signal": 99}, "worker 1 on node-2 was killed by signal 99 (unknown signal)."),
        (
            {"cause": Cause.EXIT_CODE, "code": 3, "message": "The process ended with exit code 3."},
            "worker 1 on node-2 ended with exit code 3.",
        ),
        (
            {"cause": Cause.EXCEPTION, "message": "ValueError: bad shape (in recipe.py, line 12, build_model)"},
            "worker 1 on node-2 failed: ValueError: bad shape (in recipe.py, line 12, build_model)",
        ),
        ({"cause": Cause.PORT_TAKEN}, "worker 1 on node-2 found its port in use."),
    ],
)
def test_sentences(fields, words):
    assert reason_of(ended(1, **fields)) == words


@pytest.mark.parametrize("cause", list(Cause))
def test_every_cause_has_words(cause):
    assert reason_of(ended(0, cause)).startswith("worker 0 on node-1 ")


def test_the_last_lines_of_the_log_follow():
    message = "The process ended with exit code 1."
    words = reason_of(ended(0, Cause.EXIT_CODE, code=1, message=message, last_lines="a\nb"))
    assert words == "worker 0 on node-1 ended with exit code 1. The last lines it wrote:\na\nb"


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("worker 0 ended. The last lines it wrote:\nbye", "worker 0 ended. So it is. The last lines it wrote:\nbye"),
        ("worker 0 failed: ValueError: bad (in r.py)", "worker 0 failed: ValueError: bad (in r.py). So it is."),
        ("Lost!", "Lost! So it is."),
        ("", "So it is."),
    ],
)
def test_what_we_add_stands_before_the_lines_of_the_log(reason, words):
    assert adding(reason, "So it is.") == words


def test_nothing_added_changes_nothing():
    assert adding("bad", "") == "bad"


def test_names_in_a_row():
    assert [listed(names) for names in (["a"], ["a", "b"], ["a", "b", "c"])] == ["a", "a and b", "a, b and c"]
