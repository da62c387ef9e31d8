"""Builds a job's program once on this node: a preflight's look at what only running it can show.

The program lies in a folder of its own and runs under a shim of its own, as every replica does, but on the CPU, without
TF_CONFIG, and within limits (`worker_agent/trainer/trial`). Called by `prober.py`, one program at a time.
"""

import contextlib
import math
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import psutil
import structlog

from worker_agent.daemon.control_plane import NotFetched
from worker_agent.daemon.transfer.program_store import ProgramStore
from worker_agent.daemon.zygotes import Zygotes
from worker_agent.machine.processes import identify, is_alive, send_signal
from worker_agent.protocol.codec import encode_plan
from worker_agent.protocol.commands import Launch, Probe
from worker_agent.protocol.findings import Finding
from worker_agent.protocol.job.archive import ArchiveRefused
from worker_agent.protocol.job.workload import MeasuredModel
from worker_agent.protocol.plan import Trial, plan_in
from worker_agent.protocol.states import Cause
from worker_agent.replica.cleanup import SCRATCH, end_orphans, end_using
from worker_agent.replica.folder import PLAN_FILE, RESULT_FILE, find_exit, read_shim_state, read_stop, write_stop
from worker_agent.replica.verdict import StopRequest

BUSY_S = 20.0

_GRACE_S = 0.5
_OVERTIME_S = 15.0
_TICK_S = 0.1

log = structlog.get_logger("building")


class Built(NamedTuple):
    """What was found, and what was learned, in words; `model` and `tried` as in `Probed`."""

    findings: list[Finding]
    facts: dict[str, str] = {}
    model: MeasuredModel | None = None
    tried: bool = True


class Builder:
    """Builds programs below one data folder. Used by several threads. `interrupted` are the preflights for which an
    agent that was killed was building one."""

    def __init__(self, data: Path, code: ProgramStore, zygotes: Zygotes) -> None:
        self._root = data / "probes"
        self._code = code
        self._zygotes = zygotes
        self._lock = threading.Lock()
        self.interrupted = [int(folder.name) for folder in self._root.glob("*") if folder.name.isdecimal()]
        for folder in self._root.glob("*"):
            end_using(folder / SCRATCH)
        shutil.rmtree(self._root, ignore_errors=True)

    def build(self, probe: Probe, *, wait: Callable[[float], bool], gpus: bool = True) -> Built:
        """Build it on a node that has `gpus` or not; `wait(s)` pauses, and is true when nobody waits any more."""
        if not self._lock.acquire(timeout=BUSY_S):
            why = f"{probe.node} has been building another program for {BUSY_S:g} s"
            finding = Finding("the program was not built", why, "Check again in a moment", blocks=False)
            return Built([finding], tried=False)
        folder = self._root / str(probe.preflight_id)
        try:
            return self._build(probe, folder, Trial(trains=probe.trains, gpus=gpus, question=probe.question), wait)
        except (NotFetched, ArchiveRefused) as error:
            finding = Finding("the program did not reach the node", _clause(str(error)), "Check again")
            return Built([finding], tried=False)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            self._lock.release()

    def _build(self, probe: Probe, folder: Path, trial: Trial, wait: Callable[[float], bool]) -> Built:
        spec = msgspec.structs.replace(probe.spec, time_limit_s=math.ceil(probe.build_limit_s))
        launch = Launch(command_id=0, replica_id=0, job_id=0, attempt=0, spec=spec, env=probe.env)
        plan = plan_in(folder, launch, notify="", kill_grace_s=_GRACE_S, trial=trial)
        for part in (plan.scratch, plan.spool, plan.artifacts):
            Path(part).mkdir(parents=True, mode=0o700)
        self._zygotes.expect(launch)
        self._code.install(spec.code, Path(plan.code), wait=wait)
        (folder / PLAN_FILE).write_bytes(encode_plan(plan))
        self._run(folder, launch, wait)
        end = find_exit(Path(plan.spool))
        if end is not None and end.cause in (Cause.TIME_LIMIT, Cause.STOPPED):
            why = f"it was still loading after {spec.time_limit_s} s, and was stopped"
            remedy = "Start the job if the program may take that long"
            finding = Finding("the program was not built in time", why, remedy, blocks=False)
            return Built([finding], tried=not wait(0.0))
        with contextlib.suppress(OSError, msgspec.DecodeError):
            return msgspec.json.decode((folder / RESULT_FILE).read_bytes(), type=Built)
        why = _clause(end.message) if end is not None else "it ended its watcher, too"
        if end is not None and end.ending is not None and end.ending.last_lines:
            why += f"; its last lines were: {end.ending.last_lines.splitlines()[-1]}"
        remedy = "Try the program on one machine first"
        return Built([Finding("building the program ended its process", why, remedy)])

    def _run(self, folder: Path, launch: Launch, wait: Callable[[float], bool]) -> None:
        """Until its shim has ended, and with that all that it started."""
        shim = identify(self._zygotes.start_shim(folder / PLAN_FILE, launch, wait=wait))
        over_at = time.monotonic() + launch.spec.time_limit_s + _OVERTIME_S
        while shim is not None and is_alive(shim):
            with contextlib.suppress(psutil.Error):
                psutil.Process(shim.pid).wait(_TICK_S)
            if wait(0.0) and read_stop(folder) is None:
                write_stop(folder, StopRequest(at=time.time(), cause=Cause.STOPPED, reason="", grace_s=_GRACE_S))
                send_signal(shim, signal.SIGTERM)
            if time.monotonic() > over_at:
                send_signal(shim, signal.SIGKILL)
        state = read_shim_state(folder)
        if find_exit(folder / "spool") is None and state is not None and (left := end_orphans(folder, launch, state)):
            log.warning("not all of a tried program could be ended", left=[each.leftover.words for each in left])


def _clause(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:].rstrip(".")
