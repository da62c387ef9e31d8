"""Where pytest begins: prepare the environment, then offer the fixtures of `tests/cast.py` to every test."""

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.environment import prepare

prepare()

# How fast a machine is, is no property of the program.
settings.register_profile("any_machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any_machine")

pytest_plugins = ["tests.cast"]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where `-m` only leaves out (`not tf and not stack`), modules of which it leaves out every test are not imported:
    TensorFlow alone costs each process three seconds."""
    if collection_path.suffix != ".py" or not re.fullmatch(r"not \w+( and not \w+)*", config.option.markexpr):
        return None
    marks = re.search(r"^pytestmark = .*$", collection_path.read_text(), re.M)
    left_out = [f"pytest.mark.{name}" for name in re.findall(r"not (\w+)", config.option.markexpr)]
    return True if marks and any(re.search(rf"{each}\b", marks[0]) for each in left_out) else None
