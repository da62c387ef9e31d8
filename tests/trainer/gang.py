"""Real gangs for tests of the trainer: plans as an agent writes them, processes from a zygote, spools read back."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.waiting import wait_until
from worker_agent.protocol import codec
from worker_agent.protocol.commands import Launch
from worker_agent.protocol.job.job_spec import CodeRef, JobSpec
from worker_agent.protocol.plan import Plan
from worker_agent.protocol.records import Exit, Facts, Failure, Log, Phase, Points, Progress, Record, Stream, Summary
from worker_agent.protocol.states import Cause, DeviceKind, Kind, Role, Strategy
from worker_agent.replica.folder import read_shim_state, read_stop, write_stop
from worker_agent.replica.spool import Reader
from worker_agent.replica.verdict import StopRequest

RECIPES = Path(__file__).resolve().parents[2] / "examples/recipes"


@dataclass
class Member:
    """One replica under test."""

    plan: Plan

    @property
    def name(self) -> str:
        return f"{self.plan.launch.role}:{self.plan.launch.index}"

    def said(self, stream: Stream = Stream.TRAINER) -> list[Record]:
        """All records of one stream so far."""
        reader = Reader(Path(self.plan.spool) / stream)
        records: list[Record] = []
        while batch := reader.read().records:
            records += [codec.decode_record(data) for data in batch]
        return records

    def records(self, kind: type) -> list[Any]:
        return [record for record in self.said() if isinstance(record, kind)]

    def facts(self) -> dict[str, Any]:
        """Everything that it has told of itself."""
        return {name: value for record in self.records(Facts) for name, value in record.facts.items()}

    def phases(self) -> list[str]:
        return [record.name for record in self.records(Phase)]

    def progress(self) -> list[Progress]:
        return self.records(Progress)

    def failure(self) -> Failure | None:
        found = self.records(Failure)
        return found[-1] if found else None

    def summaries(self) -> list[Summary]:
        return self.records(Summary)

    def series(self, name: str) -> dict[int, float]:
        """Step → value."""
        points: dict[int, float] = {}
        for record in self.records(Points):
            if name in record.names:
                points |= dict(zip(record.steps, record.values[record.names.index(name)], strict=True))
        return points

    def log(self) -> str:
        return "".join(record.text for record in self.said(Stream.SHIM) if isinstance(record, Log))

    def exit(self) -> Exit | None:
        found = [record for record in self.said(Stream.SHIM) if isinstance(record, Exit)]
        return found[-1] if found else None

    def stop(self) -> None:
        """As the agent stops a replica: the wish on disk, unless it has one, then SIGTERM to the shim."""
        folder = Path(self.plan.folder)
        state = read_shim_state(folder)
        assert state is not None
        if read_stop(folder) is None:
            write_stop(folder, StopRequest(at=time.time(), cause=Cause.STOPPED, reason="", grace_s=10))
        os.kill(state.shim.pid, signal.SIGTERM)


class Zygote:
    """A running zygote of one flavour."""

    def __init__(self, folder: Path, flavour: str) -> None:
        self._socket = folder / f"{flavour}.sock"
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "worker_agent.trainer.zygote", "--flavour", flavour),
                *("--socket", str(self._socket), "--parent", str(os.getpid())),
            ],
            env={**os.environ, "TF_ENABLE_ONEDNN_OPTS": "0", "CUDA_VISIBLE_DEVICES": "-1"},
        )

    def wait_ready(self, timeout_s: float = 300.0) -> None:
        wait_until(lambda: self._socket.exists() or self._process.poll() is not None, timeout_s, "the zygote is ready")
        assert self._process.poll() is None, f"the zygote ended with {self._process.returncode}"

    def start(self, member: Member) -> int:
        """Fork a replica; the shim's pid."""
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(self._socket))
            line.sendall(f"{member.plan.folder}/plan.json\n".encode())
            return int(line.makefile().readline())

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(10)


class Gang:
    """The replicas of one attempt."""

    def __init__(self, members: list[Member]) -> None:
        self.members = members
        self.by_name = {member.name: member for member in members}

    def start(self, zygote: Zygote, *, without: str = "") -> "Gang":
        for member in self.members:
            if member.name != without:
                zygote.start(member)
        return self

    def wait(self, timeout_s: float = 60.0, names: list[str] | None = None) -> None:
        """Until the replicas (of those names) have ended."""
        awaited = [member for member in self.members if names is None or member.name in names]
        try:
            wait_until(lambda: all(member.exit() for member in awaited), timeout_s, "the gang has ended")
        except AssertionError:
            raise AssertionError("\n".join(f"--- {m.name}: {m.phases()}\n{m.log()[-3000:]}" for m in awaited)) from None

    def stop(self) -> None:
        for member in self.members:
            if read_shim_state(Path(member.plan.folder)) and member.exit() is None:
                member.stop()

    def __getitem__(self, name: str) -> Member:
        return self.by_name[name]


def gang(
    folder: Path,
    recipe: Path,
    strategy: Strategy,
    *,
    workers: int = 1,
    ps: int = 0,
    devices: int = 1,
    params: dict[str, Any] | None = None,
    rendezvous_timeout_s: float = 60.0,
    scaled_rate: float | None = None,
    kind: DeviceKind = DeviceKind.CPU,
    job_id: int = 1,
    attempt: int = 1,
    checkpoints: Path | None = None,
    restore: Path | None = None,
    program: Kind = Kind.RECIPE,
    exports: bool = False,
    **spec: Any,
) -> Gang:
    """Plans of a whole gang on this machine, written into `folder`. Each process of a script has its own copy of it.

    Without `exports` no final model is written, which would be a fifth of a short training's time.
    """
    computing_chief = bool(spec.get("chief"))
    roles = [(Role.CHIEF, 0)] * (
        computing_chief or (strategy is Strategy.PARAMETER_SERVER and spec.get("chief") is None)
    )
    roles += [(Role.WORKER, i) for i in range(workers - computing_chief)] + [(Role.PS, i) for i in range(ps)]
    addresses = {key: f"127.0.0.1:{port}" for key, port in zip(roles, free_ports(len(roles)), strict=True)}
    cluster: dict[str, list[str]] = {}
    for (role, _), address in addresses.items():
        cluster.setdefault(role.value, []).append(address)
    if spec.get("validation") == "evaluator":  # beside the gang, in no cluster spec
        roles.append((Role.EVALUATOR, 0))
        addresses[Role.EVALUATOR, 0] = f"127.0.0.1:{free_ports(1)[0]}"
    members = []
    for number, (role, index) in enumerate(roles):
        place = folder / f"{role}-{index}"
        for name in ("spool", "artifacts", "scratch"):
            (place / name).mkdir(parents=True)
        code = recipe.parent
        if program is Kind.SCRIPT:
            code = place / "code"
            code.mkdir()
            shutil.copy(recipe, code)
        alone = strategy in (Strategy.ONE_DEVICE, Strategy.MIRRORED, Strategy.CENTRAL_STORAGE, Strategy.TPU)
        launch = Launch(
            command_id=number,
            replica_id=number,
            job_id=job_id,
            attempt=attempt,
            role=role,
            index=index,
            tf_config=None if alone else {"cluster": cluster, "task": {"type": role.value, "index": index}},
            host="127.0.0.1",
            port=int(addresses[role, index].rpartition(":")[2]),
            devices=list(range(devices)) if role is Role.WORKER else [],
            device_kind=kind,
            spec=JobSpec(
                name="test",
                cluster="test",
                code=CodeRef(sha256="", entry=recipe.name),
                strategy=strategy,
                kind=program,
                workers=workers,
                ps=ps,
                devices_per_worker=devices,
                params=params or {},
                **spec,
            ),
            learning_rate=scaled_rate,
            rendezvous_timeout_s=rendezvous_timeout_s,
        )
        plan = Plan(
            launch=launch,
            folder=str(place),
            code=str(code),
            entry=str(code / recipe.name),
            spool=str(place / "spool"),
            artifacts=str(place / "artifacts") if exports else "",
            scratch=str(place / "scratch"),
            notify=str(place / "nobody.sock"),
            checkpoints=str(checkpoints or ""),
            restore=str(restore or ""),
        )
        (place / "plan.json").write_bytes(codec.encode_plan(plan))
        members.append(Member(plan))
    return Gang(members)


def free_ports(count: int) -> list[int]:
    """Ports that are free now."""
    doors = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [door.getsockname()[1] for door in doors]
    for door in doors:
        door.close()
    return ports
