"""A gang under parameter servers that loses a worker, its evaluator and its ps while a person looks on."""

import os
import signal
from typing import Any

import psutil
import pytest
from playwright.sync_api import Page, expect

from tests.e2e.stack import Stack, until
from tests.e2e.test_browser import page  # noqa: F401 - the fixture

pytestmark = [pytest.mark.stack, pytest.mark.tf, pytest.mark.browser]

GANG = {"recipe": "digits_mlp", "strategy": "parameter_server", "workers": 2, "ps": 1, "validation": "evaluator"}
BACK_MS = 90_000


class Watched:
    """One job, as REST tells of it."""

    def __init__(self, stack: Stack, job_id: int) -> None:
        self._stack, self._path = stack, f"/jobs/{job_id}"

    def job(self) -> Any:
        return self._stack.get(self._path)

    def restarts(self) -> Any:
        return self._stack.get(f"{self._path}/restarts")

    def present(self) -> dict[str, Any]:
        rows = self._stack.get(f"{self._path}/replicas")
        return {f"{row['role']}:{row['index']}": row for row in rows if not row["superseded"]}

    def pids(self) -> dict[str, int]:
        return {name: row["pid"] for name, row in self.present().items()}

    def kill(self, name: str) -> Any:
        """SIGKILL; the ledger's line of it once all are at work again."""
        known = len(self.restarts())
        os.kill(self.pids()[name], signal.SIGKILL)
        rows = until(
            lambda: (rows := self.restarts())[known:] and rows[-1]["running_at"] and rows,
            within_s=150,
            what=lambda: str((self.job(), self.restarts(), self.present())),
        )
        assert len(rows) == known + 1
        return rows[-1]

    def moves_on(self) -> int:
        """Steps are taken; the step then."""
        now = self.job()["step"]
        return int(
            until(lambda: (step := self.job()["step"]) > now and step, within_s=60, what=lambda: str(self.job()))
        )


def test_a_gang_under_parameter_servers_outlives_what_it_loses(page: Page, stack: Stack) -> None:  # noqa: F811
    job_id = stack.submit(**GANG, epochs=5000, global_batch_size=32, checkpoint_steps=100)["id"]
    page.goto(f"{stack.url}/jobs/{job_id}/")
    watched, head = Watched(stack, job_id), page.locator("#job-head")
    expect(head.get_by_text("Running")).to_be_visible(timeout=BACK_MS)
    until(lambda: stack.get(f"/jobs/{job_id}/checkpoints"), within_s=60, what=stack.said)
    first = watched.pids()
    reached = watched.moves_on()

    row = watched.kill("worker:1")
    assert (row["replicas"], row["cause"], row["counted"]) == (["worker 1"], "signal", False)
    assert (row["step_resumed"], row["steps_lost"]) == (None, 0)
    assert watched.moves_on() > row["step_reached"] >= reached
    assert {name for name, pid in watched.pids().items() if pid != first[name]} == {"worker:1"}

    assert watched.kill("evaluator:0")["replicas"] == ["evaluator 0"]
    row = watched.kill("ps:0")
    assert row["replicas"] == ["chief 0", "ps 0"]
    assert row["reason"].startswith(f"ps 0 on {row['node']} was killed by signal 9 (SIGKILL)")
    assert 0 < row["step_resumed"] <= row["step_reached"]
    assert row["steps_lost"] == row["step_reached"] - row["step_resumed"]
    watched.moves_on()
    now = watched.pids()
    assert now["worker:0"] == first["worker:0"]
    assert all(psutil.pid_exists(pid) for pid in now.values())
    assert (watched.job()["status"], watched.job()["attempt"]) == ("running", 1)

    expect(page.locator("#replicas")).to_contain_text("5 of 5 at work", timeout=BACK_MS)
    expect(page.locator("#replicas tr").filter(has_text="Replaced")).to_have_count(4)
    ledger = page.locator("#restarts tbody tr")
    expect(ledger).to_have_count(3)
    for place, who in enumerate(["Worker 1", "Evaluator 0", "Chief 0, ps 0"]):
        expect(ledger.nth(place)).to_contain_text(who)
    expect(head.get_by_text("Running")).to_be_visible()
    stack.post(f"/jobs/{job_id}/stop")
    stack.wait_for_job(job_id, "stopped")
    assert not any(psutil.pid_exists(pid) for pid in watched.pids().values())
