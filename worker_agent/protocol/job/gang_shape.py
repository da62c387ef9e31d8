"""What follows from a job's description and the row of its strategy: processes, Keras, replicas, parts of a step."""

from worker_agent.protocol.job.choices import Validator
from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.protocol.job.strategies import STRATEGIES
from worker_agent.protocol.job.strategy_row import Split
from worker_agent.protocol.states import Keras, Kind, Role, Strategy


def is_leader(role: str, index: int, *, has_chief: bool) -> bool:
    """Whether this process leads its gang: its chief does where it has one, else worker 0."""
    return index == 0 and role == (Role.CHIEF if has_chief else Role.WORKER)


def has_chief(spec: JobSpec) -> bool:
    """Whether the gang has a process of that role: the coordinator of parameter servers, or a first worker."""
    return is_with_chief(spec.strategy, is_recipe=spec.kind is Kind.RECIPE, chief=spec.chief)


def is_with_chief(strategy: Strategy, *, is_recipe: bool, chief: bool | None) -> bool:
    """The same by what decides it: `chief` as in `JobSpec`."""
    if STRATEGIES[strategy].coordinated:
        return chief is not False or is_recipe
    return bool(chief)


def computing_roles(spec: JobSpec) -> list[tuple[Role, int]]:
    """The processes that hold devices and compute, the leader first."""
    if has_chief(spec) and not STRATEGIES[spec.strategy].coordinated:
        return [(Role.CHIEF, 0), *((Role.WORKER, index) for index in range(spec.workers - 1))]
    return [(Role.WORKER, index) for index in range(spec.workers)]


def deviceless_roles(spec: JobSpec) -> list[tuple[Role, int]]:
    """The processes that hold no device: a coordinator, parameter servers, an evaluator."""
    roles: list[tuple[Role, int]] = []
    if STRATEGIES[spec.strategy].coordinated:
        roles += [(Role.CHIEF, 0)] * has_chief(spec) + [(Role.PS, index) for index in range(spec.ps)]
    if spec.validation == Validator.EVALUATOR:
        roles.append((Role.EVALUATOR, 0))
    return roles


def process_count(spec: JobSpec) -> int:
    """How many processes the gang has."""
    return len(computing_roles(spec)) + len(deviceless_roles(spec))


def device_count(spec: JobSpec) -> int:
    """How many devices they hold."""
    return spec.workers * spec.devices_per_worker


def keras_of(spec: JobSpec) -> Keras:
    """The Keras that the job's processes speak: the one asked for, else what suits the strategy."""
    row = STRATEGIES[spec.strategy]
    return spec.keras or (row.script_keras if spec.kind is Kind.SCRIPT else row.keras[0])


def replicas_in_sync(spec: JobSpec) -> int:
    """How many copies of the model share one optimizer step (for a TPU 1, until it is reached)."""
    devices = device_count(spec)
    match STRATEGIES[spec.strategy].split:
        case Split.ONE_WORKER:
            return spec.devices_per_worker
        case Split.STAGES | Split.CORES:
            return 1
        case Split.GROUPS:
            return max(1, devices // spec.model_parallel)
        case Split.DEVICES:
            return devices


def least_replicas(spec: JobSpec) -> int:
    """Those in sync, or a number that divides theirs: on CPUs, a worker of several may have one replica only."""
    row = STRATEGIES[spec.strategy]
    if row.one_cpu_device:
        return spec.workers
    return 1 if row.split is Split.ONE_WORKER else replicas_in_sync(spec)


def parts_of(spec: JobSpec) -> int:
    """In how many parts a replica computes its share of a step."""
    return spec.micro_batches if STRATEGIES[spec.strategy].split is Split.STAGES else spec.accumulation
