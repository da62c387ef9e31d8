"""The machine of a gang's first worker is lost while a person looks on: the job goes on, on those that are there."""

from collections.abc import Iterator
from contextlib import suppress

import psutil
import pytest
from playwright.sync_api import Page, expect

from orchestrator.embedded.processes import agent_folder
from orchestrator.embedded.supervisor import naming
from tests.e2e.line import Line
from tests.e2e.stack import Stack, until
from tests.e2e.test_browser import page  # noqa: F401 - the fixture

pytestmark = [pytest.mark.stack, pytest.mark.tf, pytest.mark.browser]

GANG = {"recipe": "digits_mlp", "strategy": "multi_worker_mirrored", "workers": 2}
NOTICED_MS = 30_000
BACK_MS = 120_000


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    settings = {"LEASE_S": 8, "NODE_LOST_AFTER_S": 4}
    with Stack(tmp_path_factory.mktemp("stack"), nodes=3, settings=settings) as running:
        yield running


def test_a_gang_outlives_the_machine_of_its_first_worker(page: Page, stack: Stack, lines: dict[str, Line]) -> None:  # noqa: F811
    job_id = stack.submit(**GANG, epochs=20_000, global_batch_size=64, checkpoint_steps=100)["id"]
    path = f"/jobs/{job_id}"
    page.goto(f"{stack.url}{path}/")
    head, ledger = page.locator("#job-head"), page.locator("#restarts tbody tr")
    expect(head.get_by_text("Running")).to_be_visible(timeout=BACK_MS)
    until(lambda: stack.get(f"{path}/checkpoints"), within_s=60, what=stack.said)
    lost = next(each["node"] for each in stack.get(f"{path}/replicas") if each["index"] == 0)

    lose(stack, lost, lines[lost])
    expect(head.get_by_text("Restarting")).to_be_visible(timeout=NOTICED_MS)
    expect(ledger).to_have_count(1, timeout=BACK_MS)
    expect(ledger).to_contain_text(lost)
    expect(head.get_by_text("Running")).to_be_visible(timeout=BACK_MS)

    (row,) = stack.get(f"{path}/restarts")
    assert (row["cause"], row["node"], row["counted"]) == ("node_lost", lost, False)
    assert row["step_resumed"] > 0
    assert row["steps_lost"] == max(row["step_reached"] - row["step_resumed"], 0)
    assert lost not in {each["node"] for each in stack.get(f"{path}/replicas")}
    until(lambda: stack.get(path)["step"] > row["step_reached"], within_s=60, what=lambda: str(stack.get(path)))
    stack.post(f"{path}/stop")
    stack.wait_for_job(job_id, "stopped")


def lose(stack: Stack, node: str, line: Line) -> None:
    """As a power cut does: nothing of the machine answers, and all that trained there is gone."""
    line.cut()
    agent = stack.pid_of(node)
    for process in naming(agent_folder(stack.data, node)):
        if process.pid != agent:
            with suppress(psutil.NoSuchProcess):
                process.kill()
