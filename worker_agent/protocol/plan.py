"""The trainer's plan: the one file (`plan.json`) that the agent writes and shim and training process read."""

from pathlib import Path
from typing import Any

import msgspec

from worker_agent.protocol.commands import Launch
from worker_agent.protocol.job.workload import Question

# How long a process may take to end after its lease has run out; the control plane waits for it, too.
LEASE_GRACE_S = 5.0
# The variable with the folder that all processes of a script share, where its cluster has one.
SHARED_FOLDER = "TRAINYARD_SHARED_FOLDER"


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """The plan's program is not run, but looked at once, within limits; `trains` and `question` as in `Probe`. `gpus`
    says that the node has GPUs, though the program does not see them there."""

    trains: bool
    gpus: bool = True
    question: Question | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Where one replica lives on the node's disk. Paths are absolute.

    `folder` holds everything; `code` the unpacked program; `entry` the file of it that is run; `spool` the streams;
    `artifacts` what the training leaves for the user ("": nothing); `scratch` the private TMPDIR. `notify` is the
    agent's datagram socket: an empty datagram means "new bytes in the spool". `checkpoints` is where checkpoints are
    written ("": none are), `restore` the folder of the complete one to begin with ("": begin anew). `environments` is
    the agent's folder of packages that jobs require. `lease` is the file in which the agent says when it was last in
    touch. `trial` is set where the plan is of no replica, and the program is only tried.
    """

    launch: Launch
    folder: str
    code: str
    entry: str
    spool: str
    artifacts: str
    scratch: str
    notify: str
    kill_grace_s: float = 10.0
    checkpoints: str = ""
    restore: str = ""
    environments: str = ""
    lease: str = ""
    trial: Trial | None = None


def plan_in(folder: Path, launch: Launch, **more: Any) -> Plan:
    """The plan of a launch whose parts all lie in one folder."""
    parts: dict[str, Any] = {part: str(folder / part) for part in ("code", "spool", "artifacts", "scratch")}
    entry = str(folder / "code" / launch.spec.code.entry)
    return Plan(launch=launch, folder=str(folder), entry=entry, **parts, **more)
