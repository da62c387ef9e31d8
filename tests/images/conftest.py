"""Images are built, and the production shape run from them, only where `-m images` asks for it."""

import pytest


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Minutes as root: in no other run, whatever it leaves out."""
    return None if config.option.markexpr == "images" else True
