"""Gangs of which one process stands still: found, looked into, ended, and trained on from their checkpoint."""

import os
import signal
from typing import Any

import pytest

from tests.e2e.conftest import HANG_AFTER_S
from tests.e2e.recipes import STANDS_STILL
from tests.e2e.stack import Stack, until

pytestmark = [pytest.mark.stack, pytest.mark.tf]

GANG = {"recipe": "digits_mlp", "strategy": "multi_worker_mirrored", "workers": 2, "global_batch_size": 64}


def test_a_gang_of_which_one_process_is_suspended_and_a_process_that_waits_for_ever(stack: Stack) -> None:
    gang = stack.submit(**GANG, epochs=5000)["id"]
    still = stack.submit(recipe=None, code={"filename": "still.py", "text": STANDS_STILL})["id"]
    stack.wait_for_job(gang, "running", within_s=180)
    until(lambda: stack.get(f"/jobs/{gang}/checkpoints"), within_s=60, what=stack.said)
    victim = next(each for each in stack.get(f"/jobs/{gang}/replicas") if each["index"] == 1)
    os.kill(victim["pid"], signal.SIGSTOP)

    restart = _hung(stack, gang, within_s=45)
    assert restart["node"] == victim["node"]
    suspended = f"worker 1 on {victim['node']}: the process was suspended by a signal (state T)."
    assert restart["reason"].endswith(suspended)
    text = _stacks(stack, gang, "stacks-worker-1.txt")
    assert "T (suspended by a signal)" in text
    assert "worker_agent/trainer/loop/training.py" in text
    until(lambda: _trains_again(stack, gang), within_s=90, what=lambda: _told(stack, gang))
    assert stack.get(f"/jobs/{gang}/restarts")[0]["step_resumed"] > 0
    stack.post(f"/jobs/{gang}/stop")

    restart = _hung(stack, still, within_s=HANG_AFTER_S + 60)
    assert restart["reason"].endswith(f"(the last was step 3); {HANG_AFTER_S} s are allowed.")
    assert "in waits_for_a_lock" in _stacks(stack, still, "stacks-worker-0.txt")
    stack.rest.post(f"/jobs/{still}/stop")  # refused where it has hung once more already, and so has failed
    stack.wait_for_job(gang, "stopped")
    stack.wait_for_job(still, "stopped", "failed")


def _hung(stack: Stack, job: int, *, within_s: float) -> Any:
    """The restart that the hang has led to."""
    (restart,) = until(lambda: stack.get(f"/jobs/{job}/restarts"), within_s=within_s, what=lambda: _told(stack, job))
    assert (restart["cause"], restart["counted"]) == ("hung", False)
    return restart


def _stacks(stack: Stack, job: int, name: str) -> str:
    """A file of the first launch, once it has arrived."""

    def found() -> str:
        files = [each for each in stack.get(f"/jobs/{job}/artifacts") if (each["name"], each["attempt"]) == (name, 1)]
        return stack.rest.get(f"{stack.url}{files[0]['url']}").text if files else ""

    return until(found, within_s=30, what=lambda: _told(stack, job))


def _trains_again(stack: Stack, job: int) -> bool:
    now = stack.get(f"/jobs/{job}")
    return bool(now["attempt"] == 2 and now["status"] == "running")


def _told(stack: Stack, job: int) -> str:
    return f"{stack.get(f'/jobs/{job}')} {stack.get(f'/jobs/{job}/events')} {stack.log('sweep')[-2000:]}"
