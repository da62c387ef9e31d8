"""Waiting in tests that start real processes: ask again and again until the answer is true, or fail and say what did
not come true. Tests of pure code pass a clock instead.
"""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(
    ask: Callable[[], T],
    within_s: float = 60.0,
    what: str | Callable[[], str] = "it did not come true",
    *,
    every_s: float = 0.02,
    passing: tuple[type[Exception], ...] = (),
) -> T:
    """The first true answer. Errors of the kinds `passing` count as "not yet"."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            if answer := ask():
                return answer
        except passing:
            pass
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {within_s:g} s: {what if isinstance(what, str) else what()}")
        time.sleep(every_s)
