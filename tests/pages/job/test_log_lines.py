"""The level of each line of a log: what the filter "Errors" and the link "First error" show."""

from dashboard.views.job.log_lines import levels
from orchestrator.queries.telemetry import LogLine

FAILED = """\
Epoch 1
2026-01-02 03:04:05 WARNING slow input
Traceback (most recent call last):
  File "train.py", line 7, in <module>
    raise keras.errors.Broken("no\\n\\n  such\\n layer")
                             ^^^^
keras.errors.Broken: no

  such
 layer
Epoch 2
"""
SECOND = """\
Traceback (most recent call last):
  File "a.py", line 1, in <module>
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 3, in <module>
my.Own: y
"""


def said(*lines: tuple[str, str], attempt: int = 1) -> str:
    told = [LogLine(at=0.0, replica=replica, text=text, attempt=attempt) for replica, text in lines]
    return "".join(levels(told))


def test_a_traceback_is_an_error_from_its_first_line_to_its_message() -> None:
    assert said(*(("worker:0", line) for line in FAILED.splitlines())) == "IW" + "E" * 8 + "I"


def test_a_traceback_may_follow_another() -> None:
    assert said(*(("worker:0", line) for line in SECOND.splitlines())) == "EEEE" + "I" + "I" + "EEE"


def test_processes_that_speak_in_turns_have_tracebacks_of_their_own() -> None:
    of_worker = [("worker:0", line) for line in SECOND.splitlines()[:3]]
    of_chief = [("chief:0", line) for line in ("step 1", "  step 2", "step 3")]
    turns = [line for pair in zip(of_worker, of_chief, strict=True) for line in pair]
    assert said(*turns) == "EIEIEI"
