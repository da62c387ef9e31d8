"""One zygote per Keras flavour for all tests that train."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer.gang import Zygote


@pytest.fixture(scope="session")
def keras3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """Forks training processes that speak Keras 3."""
    yield from _running(tmp_path_factory.mktemp("zygote"), "keras3")


@pytest.fixture(scope="session")
def tf_keras(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """Forks training processes that speak tf_keras."""
    yield from _running(tmp_path_factory.mktemp("zygote"), "tf_keras")


def _running(folder: Path, flavour: str) -> Iterator[Zygote]:
    zygote = Zygote(folder, flavour)
    try:
        zygote.wait_ready()
        yield zygote
    finally:
        zygote.close()
