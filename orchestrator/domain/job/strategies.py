"""The strategies in words, and which fields of a job each of them reads: one table for the form, REST and pages.

`validation.py` takes defaults from it, `combinations.py` refuses a field under a strategy that does not read it,
`planning.py` asks it which processes a gang has.
"""

from dataclasses import dataclass

from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.protocol.states import Kind, Role, Strategy

# Fields that only some strategies read. Every other field of a job means the same under all of them.
PARTICULAR = (
    "workers",
    "devices_per_worker",
    "ps",
    "chief",
    "communication",
    "cross_device",
    "min_shard_bytes",
    "model_parallel",
    "micro_batches",
    "tpu",
    "validation",
    "sharding",
    "accumulation",
    "precision",
    "jit",
    "steps_per_execution",
)
# A program of one's own builds its strategy itself: of the fields above only these reach it.
OF_SCRIPTS = frozenset({"workers", "devices_per_worker", "ps", "chief", "validation", "tpu"})
_MATHS = frozenset({"accumulation", "precision", "jit", "steps_per_execution"})


@dataclass(frozen=True)
class Words:
    """A strategy as people read of it. `summary` is one line; `fields` are those of `PARTICULAR` that it reads."""

    label: str
    summary: str
    fields: frozenset[str]


WORDS: dict[Strategy, Words] = {
    Strategy.ONE_DEVICE: Words(
        "One device",
        "A single GPU or CPU slot. The base to measure others against.",
        _MATHS,
    ),
    Strategy.MIRRORED: Words(
        "Mirrored",
        "Several devices of one machine, gradients summed each step.",
        _MATHS | {"devices_per_worker", "cross_device"},
    ),
    Strategy.MULTI_WORKER_MIRRORED: Words(
        "MultiWorkerMirrored",
        "Devices of several machines, gradients summed over the network each step.",
        _MATHS | {"workers", "devices_per_worker", "chief", "communication", "sharding", "validation"},
    ),
    Strategy.PARAMETER_SERVER: Words(
        "ParameterServer",
        "Workers run at their own pace; the variables live on servers.",
        frozenset({"workers", "devices_per_worker", "ps", "min_shard_bytes", "validation", "steps_per_execution"}),
    ),
    Strategy.CENTRAL_STORAGE: Words(
        "Central storage",
        "Several devices of one machine compute; the variables live once, in its main memory.",
        _MATHS | {"devices_per_worker"},
    ),
    Strategy.TPU: Words(
        "TPU",
        "The cores of a TPU, reached by its name or address from one process.",
        frozenset({"tpu", "accumulation", "precision", "steps_per_execution"}),
    ),
    Strategy.TENSOR_PARALLEL: Words(
        "Tensor parallel",
        "Each layer split over devices, on one machine or several, for models too large for one device.",
        frozenset({"workers", "devices_per_worker", "model_parallel", "steps_per_execution"}),
    ),
    Strategy.PIPELINE: Words(
        "Pipeline",
        "Consecutive layers on different devices; parts of a batch walk through them one behind the other.",
        frozenset({"workers", "devices_per_worker", "micro_batches", "precision", "steps_per_execution"}),
    ),
}
GANGS = frozenset(strategy for strategy, words in WORDS.items() if "workers" in words.fields)
"""Strategies of several processes: each gets a TF_CONFIG."""
WITH_EVALUATOR = frozenset(strategy for strategy, words in WORDS.items() if "validation" in words.fields)


def label(strategy: Strategy | str) -> str:
    """The strategy as people say it; an unknown one as it is written."""
    return WORDS[Strategy(strategy)].label if strategy in set(Strategy) else str(strategy)


def fields_of(strategy: Strategy, kind: Kind = Kind.RECIPE) -> frozenset[str]:
    """Which of `PARTICULAR` matter to a job of this strategy and kind."""
    fields = WORDS[strategy].fields
    return fields & OF_SCRIPTS if kind is Kind.SCRIPT else fields


def readers_of(field: str) -> tuple[Strategy, ...]:
    """The strategies that read a field of `PARTICULAR`."""
    return tuple(strategy for strategy, words in WORDS.items() if field in words.fields)


def computing_roles(spec: JobSpec) -> list[tuple[Role, int]]:
    """The processes that hold devices and compute, the leader first."""
    if spec.chief:
        return [(Role.CHIEF, 0), *((Role.WORKER, index) for index in range(spec.workers - 1))]
    return [(Role.WORKER, index) for index in range(spec.workers)]


def serving_roles(spec: JobSpec) -> list[tuple[Role, int]]:
    """The processes that hold no device: a coordinator, parameter servers, an evaluator."""
    roles: list[tuple[Role, int]] = []
    if spec.strategy is Strategy.PARAMETER_SERVER:
        roles += [(Role.CHIEF, 0), *((Role.PS, index) for index in range(spec.ps))]
    if spec.validation == "evaluator":
        roles.append((Role.EVALUATOR, 0))
    return roles
