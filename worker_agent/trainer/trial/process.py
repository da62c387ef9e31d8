"""The processes of one trial: a sandbox, and in it the build of the program.

Warm, the zygote forks both. Cold, the agent starts `python -m worker_agent.trainer.trial.process FOLDER`, whose stdin
is the line to it.
"""

import os
import socket
import sys
from functools import partial
from pathlib import Path

import psutil

from worker_agent.machine import sandbox
from worker_agent.protocol.codec import decode_plan
from worker_agent.protocol.plan import Plan, Trial
from worker_agent.replica.folder import PLAN_FILE
from worker_agent.replica.shim import child_environment

MEMORY_BYTES_MIN = 4 << 30
LOWEST_PRIORITY = 19


def run(plan: Plan, trial: Trial, become: sandbox.Become, line: socket.socket) -> None:
    """Try the plan's program, and say on the line how it ended. One that is trained stands behind whatever trains
    here: no job waits for it."""
    os.chdir(plan.code)
    code = sandbox.run(
        become,
        child_environment(plan, dict(os.environ)),
        line,
        time_s=trial.time_s,
        memory_bytes=max(MEMORY_BYTES_MIN, psutil.virtual_memory().available // 2),
        nice=LOWEST_PRIORITY if trial.trains else 0,
    )
    line.sendall(f"{code}\n".encode())


def start_cold(folder: str, environment: dict[str, str]) -> int:
    """Become a new Python that builds the program in this folder."""
    command = [sys.executable, "-P", "-m", "worker_agent.trainer.trial.build", folder]
    os.execve(sys.executable, command, environment)


def main(folder: Path) -> None:
    """The cold start: its stdin is the line."""
    plan = decode_plan((folder / PLAN_FILE).read_bytes())
    if plan.trial is not None:
        run(plan, plan.trial, partial(start_cold, plan.folder), socket.socket(fileno=os.dup(0)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
