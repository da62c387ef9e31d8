"""Where pytest begins: prepare the environment, then offer the fixtures of `tests/cast.py` to every test."""

from tests.environment import prepare

prepare()

pytest_plugins = ["tests.cast"]
