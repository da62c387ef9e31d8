"""What is kept of lines that were written for a terminal."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker_agent.replica.output import terminal


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("plain\ntext\n", "plain\ntext\n"),
        ("from Windows\r\n", "from Windows\n"),
        (" 10%\r 20%\r100%\n", "100%\n"),
        ("loss: 0.31\b\b\b\b0.29\n", "loss: 0.29\n"),
        ("long line\rshort\n", "shortline\n"),
        ("long line\r\x1b[Kshort\n", "short\n"),
        ("long line\x1b[2K\rshort\n", "short\n"),
        ("abcdef\x1b[4D\x1b[1K\n", "\n"),
        ("abc\x1b[1Gx\n", "xbc\n"),
        ("\x1b[1m 1/63\x1b[0m \x1b[38;5;12mloss\x1b[0m\n", " 1/63 loss\n"),
        ("\x1b]0;title\x07text\x1b(B\n", "text\n"),
        ("\b\b\bx\n", "x\n"),
        ("ends in \x1b", "ends in"),
    ],
)
def test_a_line_is_kept_as_a_terminal_shows_it(written: str, shown: str) -> None:
    assert terminal.shown(written) == shown


def test_keras_progress_bar_leaves_its_last_state() -> None:
    bar = "".join(
        f"\r\x1b[1m{done:2}/63\x1b[0m \x1b[32m{'━' * (done // 3)}\x1b[0m loss: 0.0{99 - done}" + "\b" * 60
        for done in range(1, 64)
    )
    assert terminal.shown(bar + "\n") == f"63/63 {'━' * 21} loss: 0.036\n"


CHARACTERS = st.text(alphabet="ab1;[K\r\b\x1b\n ", max_size=60)


@given(CHARACTERS)
def test_nothing_that_acts_is_left_and_line_ends_stay(written: str) -> None:
    shown = terminal.shown(written)
    assert not re.search(r"[\r\b\x1b]", shown)
    assert shown.count("\n") == written.count("\n")


@given(CHARACTERS.filter(lambda text: "\n" not in text))
def test_a_compacted_line_shows_the_same(line: str) -> None:
    assert terminal.shown(terminal.compact(line) + "x") == terminal.shown(line + "x")
