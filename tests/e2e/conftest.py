"""One installation for all tests here that do not break it."""

from collections.abc import Iterator

import pytest

from tests.e2e.stack import Stack


@pytest.fixture(scope="package")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Trainyard with two local nodes, started as a person would."""
    with Stack(tmp_path_factory.mktemp("stack")) as running:
        yield running
