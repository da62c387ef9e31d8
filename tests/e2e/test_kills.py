"""What dies, and what must not die with it: training processes, and parts of the control plane."""

import os
import signal
import socket
import time

import httpx
import psutil
import pytest

from tests.e2e.stack import Stack, until

pytestmark = [pytest.mark.stack, pytest.mark.tf]

GANG = {"recipe": "digits_mlp", "strategy": "multi_worker_mirrored", "workers": 2, "global_batch_size": 64}


def test_kill_9_of_one_worker_ends_the_gang_and_says_so_and_it_goes_on_from_its_checkpoint(stack: Stack) -> None:
    job = stack.submit(**GANG, epochs=5000)
    stack.wait_for_job(job["id"], "running")
    until(lambda: stack.get(f"/jobs/{job['id']}/checkpoints"), within_s=60, what=stack.said)
    replicas = stack.get(f"/jobs/{job['id']}/replicas")
    victim = next(replica for replica in replicas if replica["index"] == 1)

    os.kill(victim["pid"], signal.SIGKILL)
    killed_at = time.monotonic()
    (restart,) = until(
        lambda: stack.get(f"/jobs/{job['id']}/restarts"),
        within_s=20,
        what=lambda: str(stack.get(f"/jobs/{job['id']}")),
    )

    assert time.monotonic() - killed_at < 20
    assert (restart["cause"], restart["node"], restart["counted"]) == ("signal", victim["node"], False)
    assert f"worker 1 on {victim['node']} was killed by signal 9 (SIGKILL)" in restart["reason"]
    for replica in stack.get(f"/jobs/{job['id']}/replicas", attempt=1):
        assert replica["status"] == "exited"
        ended = replica["ending"]
        if replica["index"] == 1:
            assert (ended["cause"], ended["signal"], ended["sender"]) == ("signal", 9, "outside")
        else:
            assert ended["cause"] == "stopped" or ended["lost_peer"]
        assert not psutil.pid_exists(replica["pid"])
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", replica["port"]))

    again = until(
        lambda: (found := stack.get(f"/jobs/{job['id']}"))["attempt"] == 2 and found["status"] == "running" and found,
        within_s=60,
        what=lambda: str(stack.get(f"/jobs/{job['id']}")),
    )
    (restart,) = stack.get(f"/jobs/{job['id']}/restarts")
    assert 0 < restart["step_resumed"] <= again["step"]
    assert restart["steps_lost"] == max(restart["step_reached"] - restart["step_resumed"], 0)
    assert restart["seconds_lost"] > 0
    ports = {(replica["host"], replica["port"]) for replica in stack.get(f"/jobs/{job['id']}/replicas")}
    assert not ports & {(replica["host"], replica["port"]) for replica in replicas}
    stack.post(f"/jobs/{job['id']}/stop")
    stack.wait_for_job(job["id"], "stopped")


def test_web_ingest_and_celery_killed_under_a_running_job(stack: Stack) -> None:
    job = stack.submit(**GANG, epochs=80)
    stack.wait_for_job(job["id"], "running")
    pids = {replica["pid"] for replica in stack.get(f"/jobs/{job['id']}/replicas")}

    for name in ("web", "ingest", "celery"):
        stack.kill_process(name)
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
