"""Builds a job's program once on this node, in a sandbox: a preflight's look at what only running it can show.

The program lies in a folder of its own and runs on the CPU, without TF_CONFIG (`worker_agent/trainer/trial`). Its
sandbox is forked by the zygote, or started cold where there is none; what a program that has ended its sandbox leaves
running is ended here, by the TMPDIR that it has to itself. Called by `prober.py`, one program at a time.
"""

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import structlog

from worker_agent.daemon.settings import program_environment
from worker_agent.daemon.transfer.program_store import ProgramRefused, ProgramStore
from worker_agent.daemon.zygotes import Zygotes
from worker_agent.machine.sandbox import TIMED_OUT
from worker_agent.protocol.codec import encode_plan
from worker_agent.protocol.commands import Launch, Probe
from worker_agent.protocol.findings import Finding
from worker_agent.protocol.plan import Plan, Trial, plan_in
from worker_agent.replica.cleanup import end_using
from worker_agent.replica.folder import OUTPUT_FILE, PLAN_FILE, RESULT_FILE
from worker_agent.replica.training_process import training_environment

BUSY_S = 20.0

_OUTPUT_CHARS = 500
_TICK_S = 0.1
_END_S = 10.0

log = structlog.get_logger("building")


class Built(NamedTuple):
    """What was found, and what was learned, in words. `tried` as in `Probed`."""

    findings: list[Finding]
    facts: dict[str, str] = {}
    tried: bool = True


class Builder:
    """Builds programs below one data folder. Used by several threads."""

    def __init__(self, data: Path, code: ProgramStore, zygotes: Zygotes) -> None:
        self._root = data / "probes"
        self._code = code
        self._zygotes = zygotes
        self._lock = threading.Lock()
        shutil.rmtree(self._root, ignore_errors=True)

    def build(self, probe: Probe, *, wait: Callable[[float], bool], gpus: bool = True) -> Built:
        """Build it on a node that has `gpus` or not; `wait(s)` pauses, and is true when nobody waits any more."""
        if not self._lock.acquire(timeout=BUSY_S):
            why = f"{probe.node} has been building another one for {BUSY_S:g} s"
            finding = Finding("the program was not built", why, "Check again in a moment", blocks=False)
            return Built([finding], tried=False)
        folder = self._root / str(probe.preflight_id)
        scratch = folder / "scratch"
        try:
            scratch.mkdir(parents=True, mode=0o700)
            return self._build(probe, folder, Trial(trains=probe.trains, time_s=probe.build_limit_s, gpus=gpus), wait)
        except ProgramRefused as error:
            why = str(error)[:1].lower() + str(error)[1:].rstrip(".")
            return Built([Finding("the program did not reach the node", why, "Check again")], tried=False)
        finally:
            if left := end_using(scratch):
                log.warning("not all of a tried program could be ended", left=[each.leftover.words for each in left])
            shutil.rmtree(folder, ignore_errors=True)
            self._lock.release()

    def _build(self, probe: Probe, folder: Path, trial: Trial, wait: Callable[[float], bool]) -> Built:
        launch = Launch(command_id=0, replica_id=0, job_id=0, attempt=0, spec=probe.spec, env=probe.env)
        plan = plan_in(folder, launch, notify="", trial=trial)
        self._code.install(probe.spec.code, folder / "code", wait=wait)
        (folder / PLAN_FILE).write_bytes(encode_plan(plan))
        if line := self._zygotes.try_out(folder / PLAN_FILE, launch, wait=wait):
            code = _ended(line, wait=wait)
        else:
            process, line = _start_cold(plan)
            with process:
                code = _ended(line, wait=wait)
        if code == TIMED_OUT:
            why = f"it was still loading after {trial.time_s:g} s, and was ended"
            remedy = "Start it, if it may take that long"
            finding = Finding("the program was not built in time", why, remedy, blocks=False)
            return Built([finding], tried=not wait(0.0))
        try:
            return msgspec.json.decode((folder / RESULT_FILE).read_bytes(), type=Built)
        except (OSError, msgspec.DecodeError):
            return Built([_died(code, folder)])


def _start_cold(plan: Plan) -> tuple[subprocess.Popen[bytes], socket.socket]:
    ours, theirs = socket.socketpair()
    environment = training_environment(plan, program_environment(os.environ))
    command = [sys.executable, "-P", "-m", "worker_agent.trainer.trial.build", plan.folder]
    with theirs, (Path(plan.folder) / OUTPUT_FILE).open("wb") as output:
        process = subprocess.Popen(
            command, env=environment, stdin=theirs.fileno(), stdout=output, stderr=output, start_new_session=True
        )
    return process, ours


def _ended(line: socket.socket, *, wait: Callable[[float], bool]) -> int:
    """How the program in the sandbox at the other end ended; that is asked to end it when nobody waits any more."""
    with line, contextlib.suppress(OSError, ValueError):
        while not select.select([line], [], [], _TICK_S)[0]:
            if wait(0.0):
                line.shutdown(socket.SHUT_WR)
                line.settimeout(_END_S)
                break
        return int(line.makefile("rb").readline())
    return -signal.SIGKILL  # it was killed before it could say anything


def _died(code: int, folder: Path) -> Finding:
    said = (folder / OUTPUT_FILE).read_text(errors="replace").strip().splitlines()
    last = f"; it said last: {said[-1][:_OUTPUT_CHARS]}" if said else ""
    number = code - 128 if code > 128 else -code  # the program's end, or the sandbox's own
    how = f"signal {number} ended it" if number > 0 else f"it left with status {code}"
    return Finding("building the program ended its process", f"{how}{last}", "Try the program on one machine first")
