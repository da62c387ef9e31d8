"""Builds a job's program once on this node, in a sandbox: a preflight's look at what only running it can show.

The program lies in a folder of its own and runs on the CPU, below whatever trains here, without TF_CONFIG
(`worker_agent/sandbox.py`, `worker_agent/trainer/check.py`). Called by `prober.py`, one program at a time.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil

from worker_agent.daemon.code import CodeRefused, CodeStore
from worker_agent.daemon.settings import program_environment
from worker_agent.folder import PLAN_FILE
from worker_agent.protocol.codec import encode_plan
from worker_agent.protocol.commands import Launch, Probe
from worker_agent.protocol.findings import Finding
from worker_agent.protocol.plan import Plan
from worker_agent.protocol.states import DeviceKind, Role
from worker_agent.sandbox import TIMED_OUT
from worker_agent.shim import child_environment

BUSY_S = 20.0
MEMORY_BYTES_MIN = 4 << 30

_OUTPUT_FILE = "output.log"
_OUTPUT_CHARS = 500
_TICK_S = 0.1
_END_S = 10.0

Built = tuple[list[Finding], dict[str, str]]


class Builder:
    """Builds programs below one data folder. Used by several threads."""

    def __init__(self, data: Path, code: CodeStore) -> None:
        self._root = data / "probes"
        self._code = code
        self._lock = threading.Lock()
        shutil.rmtree(self._root, ignore_errors=True)

    def build(self, probe: Probe, *, wait: Callable[[float], bool]) -> Built:
        """What was found, and what was learned. `wait(s)` pauses, and is true when nobody waits any more."""
        if not self._lock.acquire(timeout=BUSY_S):
            why = f"{probe.node} has been building another one for {BUSY_S:g} s"
            return [Finding("the program was not built", why, "Check again in a moment", blocks=False)], {}
        folder = self._root / str(probe.preflight_id)
        try:
            return self._build(probe, folder, wait)
        except CodeRefused as error:
            return [Finding("the program did not reach the node", _clause(str(error)), "Check again")], {}
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            self._lock.release()

    def _build(self, probe: Probe, folder: Path, wait: Callable[[float], bool]) -> Built:
        plan = _plan(probe, folder)
        for part in (plan.scratch, plan.artifacts):
            Path(part).mkdir(parents=True, mode=0o700)
        self._code.install(probe.spec.code, Path(plan.code), wait=wait)
        (folder / PLAN_FILE).write_bytes(encode_plan(plan))
        code = _run(plan, time_s=probe.build_limit_s, wait=wait)
        if code == TIMED_OUT:
            why = f"it was still loading after {probe.build_limit_s:g} s, and was ended"
            remedy = "Start it, if it may take that long"
            return [Finding("the program was not built in time", why, remedy, blocks=False)], {}
        try:
            result: Built = msgspec.json.decode((folder / "result.json").read_bytes(), type=Built)
        except (OSError, msgspec.DecodeError):
            return [_died(code, folder)], {}
        return result


def _plan(probe: Probe, folder: Path) -> Plan:
    """The plan of a process that is no replica: on the CPU, alone, and nobody listens to it."""
    launch = Launch(
        command_id=0,
        replica_id=0,
        job_id=0,
        attempt=0,
        role=Role.WORKER,
        index=0,
        tf_config=None,
        host="",
        port=0,
        devices=[],
        device_kind=DeviceKind.CPU,
        spec=probe.spec,
        env=probe.env,
    )
    return Plan(
        launch=launch,
        folder=str(folder),
        code=str(folder / "code"),
        entry=str(folder / "code" / probe.spec.code.entry),
        spool="",
        artifacts=str(folder / "artifacts"),
        scratch=str(folder / "scratch"),
        notify="",
    )


def _run(plan: Plan, *, time_s: float, wait: Callable[[float], bool]) -> int:
    memory_bytes = max(MEMORY_BYTES_MIN, psutil.virtual_memory().available // 2)
    limits = ["--time-s", str(time_s), "--memory-bytes", str(memory_bytes)]
    program = [sys.executable, "-P", "-m", "worker_agent.trainer.check", plan.folder]
    with (Path(plan.folder) / _OUTPUT_FILE).open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "worker_agent.sandbox", *limits, "--", *program],
            cwd=plan.code,
            env=child_environment(plan, program_environment(os.environ)),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        while process.poll() is None:
            if wait(_TICK_S):
                process.send_signal(signal.SIGTERM)
                process.wait(_END_S)
    return process.returncode


def _died(code: int, folder: Path) -> Finding:
    said = (folder / _OUTPUT_FILE).read_text(errors="replace").strip().splitlines()
    last = f"; it said last: {said[-1][:_OUTPUT_CHARS]}" if said else ""
    number = code - 128 if code > 128 else -code  # the program's end, or the sandbox's own
    how = f"signal {number} ended it" if number > 0 else f"it left with status {code}"
    return Finding("building the program ended its process", f"{how}{last}", "Try the program on one machine first")


def _clause(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:].rstrip(".")
