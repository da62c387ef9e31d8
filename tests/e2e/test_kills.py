"""What dies, and what must not die with it: training processes, and parts of the control plane."""

import os
import signal
import socket
import time
from pathlib import Path

import httpx
import psutil
import pytest

from tests.e2e.stack import Stack, until

pytestmark = [pytest.mark.stack, pytest.mark.tf]

GANG = {"recipe": "digits_mlp", "strategy": "multi_worker_mirrored", "workers": 2, "global_batch_size": 64}


def test_kill_9_of_one_worker_ends_the_gang_and_says_so(stack: Stack) -> None:
    job = stack.submit(**GANG, epochs=5000)
    stack.wait_for_job(job["id"], "running")
    replicas = stack.get(f"/jobs/{job['id']}/replicas")
    victim = next(replica for replica in replicas if replica["index"] == 1)

    os.kill(victim["pid"], signal.SIGKILL)
    killed_at = time.monotonic()
    ended = until(
        lambda: (found := stack.get(f"/jobs/{job['id']}"))["status"] == "failed" and found,
        within_s=20,
        what=lambda: str(stack.get(f"/jobs/{job['id']}")),
    )

    assert time.monotonic() - killed_at < 20
    assert ended["cause"] == "signal"
    assert "worker 1" in ended["reason"]
    assert "SIGKILL" in ended["reason"]
    assert victim["node"] in ended["reason"]
    for replica in stack.get(f"/jobs/{job['id']}/replicas"):
        assert replica["status"] == "exited"
        assert not psutil.pid_exists(replica["pid"])
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", replica["port"]))


def test_web_ingest_and_celery_killed_under_a_running_job(tmp_path: Path) -> None:
    with Stack(tmp_path) as stack:
        job = stack.submit(**GANG, epochs=300)
        stack.wait_for_job(job["id"], "running")
        pids = {replica["pid"] for replica in stack.get(f"/jobs/{job['id']}/replicas")}

        for program in ("web", "ingest", "celery"):
            stack.kill_program(program)
            time.sleep(1)
        until(lambda: _answers(stack), within_s=30, what=stack.said)
        done = stack.wait_for_job(job["id"], "succeeded", within_s=150)

        assert done["attempt"] == 1
        assert {replica["pid"] for replica in stack.get(f"/jobs/{job['id']}/replicas")} == pids
        (loss,) = stack.get(f"/jobs/{job['id']}/series", names="loss", points=20_000)["loss"]
        assert loss["steps"] == list(range(1, done["total_steps"] + 1))
        assert done["step"] == done["total_steps"]


def _answers(stack: Stack) -> bool:
    try:
        stack.get("/nodes")
    except (AssertionError, httpx.HTTPError):
        return False
    return True
