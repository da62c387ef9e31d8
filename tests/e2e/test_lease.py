"""A node that is cut off: for less than its lease nothing happens, for longer its process is ended before another one
begins in its place."""

import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.e2e.line import Line
from tests.e2e.stack import Stack, until

pytestmark = [pytest.mark.stack, pytest.mark.tf]

LEASE_S = 10
NODE_LOST_AFTER_S = 4


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with Stack(tmp_path, settings={"LEASE_S": LEASE_S, "NODE_LOST_AFTER_S": NODE_LOST_AFTER_S}) as running:
        yield running


def test_a_node_that_is_cut_off(stack: Stack, lines: dict[str, Line]) -> None:
    job = stack.submit(recipe="digits_mlp", strategy="one_device", epochs=100_000)
    path = f"/jobs/{job['id']}"
    stack.wait_for_job(job["id"], "running")
    (first,) = stack.get(f"{path}/replicas")
    process, line = psutil.Process(first["pid"]), lines[first["node"]]
    until(lambda: stack.get(f"{path}/checkpoints"), within_s=60, what=stack.said)

    line.cut()
    until(lambda: state_of(stack, first["node"]) == "lost", within_s=LEASE_S - 2, what=stack.said)
    line.mend()
    until(lambda: state_of(stack, first["node"]) == "ready", within_s=20, what=stack.said)
    time.sleep(LEASE_S)
    assert runs(process)
    (same,) = stack.get(f"{path}/replicas")
    assert (same["pid"], same["attempt"], same["status"]) == (first["pid"], 1, "running")

    line.cut()
    until(lambda: not runs(process), within_s=LEASE_S + 20, what=stack.said)
    assert stack.get(path)["attempt"] == 1
    second = until(lambda: started(stack, path, attempt=2), within_s=60, what=lambda: str(stack.get(path)))
    assert second["node"] != first["node"]
    line.mend()
    old = until(lambda: refused(stack, path), within_s=30, what=lambda: str(stack.get(f"{path}/replicas", attempt=1)))
    assert (old["status"], old["cause"]) == ("lost", "node_lost")
    (restart,) = stack.get(f"{path}/restarts")
    assert (restart["cause"], restart["node"], restart["counted"]) == ("node_lost", first["node"], False)
    assert restart["step_resumed"] > 0
    assert any(event["kind"] == "output_refused" for event in stack.get(f"{path}/events"))
    stack.post(f"{path}/stop")
    stack.wait_for_job(job["id"], "stopped")


def state_of(stack: Stack, node: str) -> str:
    return next(each["state"] for each in stack.get("/nodes") if each["name"] == node)


def runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def started(stack: Stack, path: str, *, attempt: int) -> dict[str, object] | None:
    rows = stack.get(f"{path}/replicas", attempt=attempt) if stack.get(path)["attempt"] >= attempt else []
    return rows[0] if rows and rows[0]["pid"] else None


def refused(stack: Stack, path: str) -> dict[str, object] | None:
    (row,) = stack.get(f"{path}/replicas", attempt=1)
    return row if row["refused"] else None
