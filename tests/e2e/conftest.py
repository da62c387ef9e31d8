"""One installation for all tests here that do not break it."""

from collections.abc import Iterator

import pytest

from orchestrator.embedded.processes import agent_folder
from tests.e2e.line import Line
from tests.e2e.stack import Stack

# As short as it may be under `make up`, where a node is lost after as long.
HANG_AFTER_S = 30


@pytest.fixture(scope="package")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Trainyard with two local nodes, started as a person would."""
    with Stack(tmp_path_factory.mktemp("stack"), settings={"HANG_AFTER_S": HANG_AFTER_S}) as running:
        yield running


@pytest.fixture
def lines(stack: Stack) -> Iterator[dict[str, Line]]:
    """By node, the line to Redis that its agent has from now on, which a test may cut; mended at the end."""
    names = [node["name"] for node in stack.get("/nodes")]
    lines = {name: Line.of_node(agent_folder(stack.data, name)) for name in names}
    for name in lines:
        stack.kill_process(name)
    yield lines
    for line in lines.values():
        line.mend()
    for line in lines.values():
        line.close()


@pytest.fixture(scope="session")
def browser_type_launch_args() -> dict[str, object]:
    """Debian's Chromium, with what it would fetch from elsewhere switched off."""
    flags = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync")
    quiet = ("--disable-background-networking", "--disable-component-update")
    return {"executable_path": "/usr/bin/chromium", "headless": True, "args": [*flags, *quiet]}
