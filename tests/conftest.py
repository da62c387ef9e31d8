"""Where pytest begins: prepare the environment, then offer the fixtures of `tests/cast.py` to every test."""

from hypothesis import HealthCheck, settings

from tests.environment import prepare

prepare()

# How fast a machine is, is no property of the program.
settings.register_profile("any_machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any_machine")

pytest_plugins = ["tests.cast"]
