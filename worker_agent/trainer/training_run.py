"""One training run as the trainer sees it, the same whether an agent or a person at a terminal started it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from worker_agent.protocol.job.gang_shape import is_leader
from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.protocol.job.strategies import STRATEGIES
from worker_agent.protocol.job.strategy_row import StrategyRow
from worker_agent.protocol.plan import Plan
from worker_agent.protocol.states import DeviceKind, Role, Strategy


@dataclass(frozen=True, kw_only=True)
class Member:
    """A process of the gang: its TensorFlow name and the address its server listens on."""

    role: str
    index: int
    host: str
    port: int

    @property
    def name(self) -> str:
        """As people read it: `worker:1`."""
        return f"{self.role}:{self.index}"


@dataclass(frozen=True, kw_only=True)
class TrainingRun:
    """What was asked for (`spec`), and what was decided for this process.

    `rendezvous_key` is the same for all processes of one attempt and for nobody else. `scaled_rate` is the learning
    rate to train with, None where the process has to work it out from the spec. `artifacts` None means that nothing is
    kept. `threads` 0 leaves the choice to TensorFlow. `checkpoints` is where checkpoints are written (None: nowhere),
    `checkpoints_shared` that all nodes see that folder; `restore` the one to begin with, `restore_sha256` the digest of
    its marker ("": any). `comes_later`: it takes the place of another, in a gang that has met and goes on. `folder` is
    the replica's own; `environments` is where packages that jobs require are kept.
    """

    entry: Path
    code: Path
    spec: JobSpec
    folder: Path = Path()
    environments: Path | None = None
    role: Role = Role.WORKER
    index: int = 0
    gang: tuple[Member, ...] = ()
    scaled_rate: float | None = None
    devices: int = 1
    device_kind: DeviceKind = DeviceKind.CPU
    threads: int = 0
    artifacts: Path | None = None
    rendezvous_timeout_s: float = 120.0
    rendezvous_key: str = ""
    job_id: int = 0
    attempt: int = 0
    checkpoints: Path | None = None
    checkpoints_shared: bool = False
    restore: Path | None = None
    restore_sha256: str = ""
    comes_later: bool = False

    @property
    def strategy(self) -> StrategyRow:
        """What is particular to the job's strategy."""
        return STRATEGIES[self.spec.strategy]

    @property
    def leads(self) -> bool:
        """True for the one process that speaks for the job: its loss, its epoch lines, its model."""
        return is_leader(self.role, self.index, has_chief=self.has_chief)

    @property
    def has_chief(self) -> bool:
        """True where the gang has a process of that role: the coordinator of parameter servers, or a first worker."""
        return any(member.role == Role.CHIEF for member in self.gang)

    @property
    def me(self) -> Member:
        """This process among the gang."""
        return next(m for m in self.gang if m.role == self.role and m.index == self.index)

    @property
    def others(self) -> list[Member]:
        """Everybody of the gang but this process."""
        return [m for m in self.gang if (m.role, m.index) != (self.role, self.index)]

    @property
    def leader(self) -> Member:
        """The process that the others meet at."""
        return next(each for each in self.gang if is_leader(each.role, each.index, has_chief=self.has_chief))

    @property
    def workers(self) -> int:
        """How many processes compute gradients."""
        return max(1, sum(m.role in self.strategy.computing for m in self.gang))

    @property
    def place(self) -> int:
        """This process's number among those that compute: a chief that computes comes first."""
        after_chief = self.role is Role.WORKER and self.has_chief and Role.CHIEF in self.strategy.computing
        return self.index + after_chief


def from_plan(plan: Plan, *, cores: int) -> TrainingRun:
    """The run an agent asks for."""
    launch, spec = plan.launch, plan.launch.spec
    gang = members(launch.tf_config)
    return TrainingRun(
        entry=Path(plan.entry),
        code=Path(plan.code),
        spec=spec,
        folder=Path(plan.folder),
        environments=Path(plan.environments) if plan.environments else None,
        role=launch.role,
        index=launch.index,
        gang=gang,
        scaled_rate=launch.learning_rate,
        devices=len(launch.devices) or 1,
        device_kind=launch.device_kind if launch.devices else DeviceKind.CPU,
        threads=threads_for(gang, spec.strategy, host=launch.host, cores=cores),
        artifacts=Path(plan.artifacts) if plan.artifacts else None,
        rendezvous_timeout_s=launch.rendezvous_timeout_s,
        rendezvous_key=f"{launch.job_id}/{launch.attempt}",
        job_id=launch.job_id,
        attempt=launch.attempt,
        checkpoints=Path(plan.checkpoints) if plan.checkpoints else None,
        checkpoints_shared=bool(launch.checkpoints),
        restore=Path(plan.restore) if plan.restore else None,
        restore_sha256=launch.restore.sha256 if launch.restore else "",
        comes_later=launch.incarnation > 0,
    )


def members(tf_config: Mapping[str, object] | None) -> tuple[Member, ...]:
    """The processes a TF_CONFIG names (the evaluator stands outside the cluster and is not among them)."""
    cluster = (tf_config or {}).get("cluster", {})
    if not isinstance(cluster, Mapping):
        raise ValueError("TF_CONFIG holds no cluster")
    found = []
    for role, addresses in cluster.items():
        for index, address in enumerate(addresses):
            host, _, port = str(address).rpartition(":")
            found.append(Member(role=str(role), index=index, host=host.strip("[]"), port=int(port)))
    return tuple(found)


def task_of(tf_config_json: str) -> tuple[dict[str, object], Role, int]:
    """A TF_CONFIG from the environment: the whole, and who this process is."""
    tf_config = json.loads(tf_config_json)
    task = tf_config.get("task", {})
    return tf_config, Role(task.get("type", "worker")), int(task.get("index", 0))


def threads_for(gang: tuple[Member, ...], strategy: Strategy, *, host: str, cores: int) -> int:
    """A fair share of the cores: computing processes of one gang on one machine shall not fight each other."""
    here = sum(member.host == host and member.role in STRATEGIES[strategy].computing for member in gang)
    return max(1, cores // max(1, here))
