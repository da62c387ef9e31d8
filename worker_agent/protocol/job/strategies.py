"""The strategies, one row each: words, fields, processes, Keras, limits, module (see `strategy_row.py`).

The form, REST, pages, documentation, placement, batch arithmetic, restarts and the trainer read the same rows.
"""

from collections.abc import Mapping
from typing import Any

from worker_agent.protocol.job.choices import Precision
from worker_agent.protocol.job.field import Field
from worker_agent.protocol.job.job_spec import FIELDS, JobSpec
from worker_agent.protocol.job.strategy_row import Derived, Limit, Split, StrategyRow
from worker_agent.protocol.states import Keras, Kind, Strategy

_MATHS = frozenset({"accumulation", "precision", "jit", "steps_per_execution"})
_GANG = frozenset({"workers", "devices_per_worker", "steps_per_execution"})
_SEVERAL = {"workers": 2}
_ALL_DEVICES = Derived("all of the gang's devices", lambda values: values["workers"] * values["devices_per_worker"])

_ONE_PROCESS = {
    "validation": "{label} has one process, which also validates: set `validation` to `gang`, or choose "
    "`multi_worker_mirrored`",
    "tf_config": "{label} has one process and needs no TF_CONFIG: leave it empty, or choose `multi_worker_mirrored`",
}
_NEVER_MEET = (
    "{label} runs in one process: {s.workers} workers would train {s.workers} separate models. Set 1, or choose "
    "`multi_worker_mirrored`"
)
_NO_WHOLE_MODEL = (
    "under {label} no process holds the whole model, so an evaluator cannot validate it: set `validation` to `gang`"
)
_KERAS_3 = "{label} splits models of Keras 3: leave `keras` empty"

STRATEGIES: Mapping[Strategy, StrategyRow] = {
    Strategy.ONE_DEVICE: StrategyRow(
        label="One device",
        summary="A single GPU or CPU slot. The baseline for the other strategies.",
        guide="Use it while you write a program.",
        module="mirrored.one_device",
        times_steps=True,
        class_name="OneDeviceStrategy",
        reads=_MATHS,
        refuses=_ONE_PROCESS,
    ),
    Strategy.MIRRORED: StrategyRow(
        label="Mirrored",
        summary="Several devices of one machine; their gradients are summed in each step.",
        guide="Use it for several GPUs and a model that fits on each of them. Every device holds a copy of the model "
        "and computes its part of the batch. `cross_device` chooses how gradients are summed: `nccl` on GPUs, "
        "`hierarchical_copy` and `reduction_to_one_device` on any device. On a node without GPUs, logical CPU devices "
        "do the same: that tests whether a program is correct, not how fast it is.",
        module="mirrored.mirrored",
        times_steps=True,
        class_name="MirroredStrategy",
        reads=_MATHS | {"devices_per_worker", "cross_device"},
        defaults={"devices_per_worker": 2},
        refuses=_ONE_PROCESS | {"workers": _NEVER_MEET},
    ),
    Strategy.MULTI_WORKER_MIRRORED: StrategyRow(
        label="MultiWorkerMirrored",
        summary="Devices of several machines; their gradients are summed over the network in each step.",
        guide="Use it for equal machines with a fast network. It works like Mirrored over all of them, with one "
        "process per worker. `communication` is `ring`, `nccl` or `auto`. `sharding` says how the examples are divided "
        "among the workers. `chief` only gives the first worker that name. The slowest worker sets the pace. When a "
        "worker is lost, the whole gang is launched again. On CPUs TensorFlow uses one device of each process, so use "
        "more workers instead of more devices.",
        module="mirrored.multi_worker_mirrored",
        times_steps=True,
        class_name="MultiWorkerMirroredStrategy",
        reads=_MATHS | _GANG | {"chief", "communication", "sharding", "validation"},
        defaults=_SEVERAL,
        one_cpu_device=True,
    ),
    Strategy.PARAMETER_SERVER: StrategyRow(
        label="ParameterServer",
        summary="Each worker runs at its own pace; the variables are stored on parameter servers.",
        guide="Use it for many or unequal machines, or very large embeddings. The variables are stored on `ps` "
        "processes. The chief hands out the work; each worker fetches the variables, computes gradients and updates "
        "the variables. Updates are asynchronous: a gradient may be some updates old when it is applied (staleness, "
        "shown on the job page), so results differ from run to run. The global batch is what one worker computes for "
        "one update, divided among its devices. Each example is used once per epoch: the chief assigns batches by "
        "number, and every worker reads all examples to find its own. Variables are split over the parameter "
        "servers into parts of at least `min_shard_bytes`. There is no gradient accumulation, mixed precision or XLA. "
        "A lost worker starts again while the others continue ([reliability](reliability.md#parts-of-a-gang)).",
        module="served.parameter_server",
        class_name="ParameterServerStrategy",
        reads=_GANG | {"ps", "chief", "min_shard_bytes", "validation"},
        defaults=_SEVERAL | {"ps": 1},
        split=Split.ONE_WORKER,
        coordinated=True,
        leader_drives=True,
        keras=(Keras.TF_KERAS,),
        other_keras="Keras 3 loses updates under {label}: choose `tf_keras`, or leave `keras` empty",
        script_keras=Keras.TF_KERAS,
        shares_checkpoints=False,
        measured=("staleness", "staleness_max"),
        limits=(
            Limit("ps", lambda s: s.ps == 0, "{label} needs at least one parameter server: set 1 or more"),
            Limit(
                "chief",
                lambda s: s.chief is False and s.kind is Kind.RECIPE,
                "the chief of a recipe hands out the work: leave `chief` out",
            ),
        ),
        refuses={
            "accumulation": "a worker of {label} applies each update at once: set `accumulation` to 1 and use a "
            "smaller batch, or choose a synchronous strategy",
            "precision": "the variables on parameter servers are updated in float32: set `precision` to `float32`, or "
            "choose a synchronous strategy",
            "jit": "XLA cannot compile a step whose variables are in other processes: leave `jit` out, or choose a "
            "synchronous strategy",
        },
    ),
    Strategy.CENTRAL_STORAGE: StrategyRow(
        label="Central storage",
        summary="Several devices of one machine compute; the variables are stored once, in main memory.",
        guide="Use it for a model whose layers each fit on a device although all its variables do not, or for machines "
        "with slow links between devices. Otherwise Mirrored is faster.",
        module="mirrored.central_storage",
        times_steps=True,
        class_name="CentralStorageStrategy",
        reads=(_MATHS - {"jit"}) | {"devices_per_worker"},
        defaults={"devices_per_worker": 2},
        batch_note="variables stay in main memory",
        limits=(
            Limit(
                "precision",
                lambda s: s.precision == Precision.MIXED_FLOAT16 and s.keras is not Keras.TF_KERAS,
                "Keras 3 cannot scale the loss under central storage: choose `mixed_bfloat16`, or `keras` `tf_keras`",
            ),
        ),
        refuses=_ONE_PROCESS
        | {
            "workers": _NEVER_MEET,
            "jit": "XLA cannot reach the variables of central storage: leave `jit` out, or choose `mirrored`",
        },
    ),
    Strategy.TPU: StrategyRow(
        label="TPU",
        summary="The cores of a TPU, reached by its name or address from one process.",
        guide="`tpu` is the name or the address of a TPU that the node can reach, or `local` for the node's own TPU. "
        "The job connects to the TPU before it builds the model, and fails with a message if there is none within the "
        "rendezvous time. The learning rate cannot be scaled, because the number of cores is known only then.",
        module="mirrored.tpu",
        class_name="TPUStrategy",
        reads=frozenset({"tpu", "accumulation", "precision", "steps_per_execution"}),
        split=Split.CORES,
        limits=(
            Limit(
                "precision",
                lambda s: s.precision == Precision.MIXED_FLOAT16,
                "a TPU computes in bfloat16, not in float16: choose `mixed_bfloat16`",
            ),
        ),
        refuses=_ONE_PROCESS
        | {
            "devices_per_worker": "the cores of a TPU are counted when the job connects to it: set 1",
            "jit": "XLA always compiles what runs on a TPU: leave `jit` out",
            "lr_scaling": "the number of replicas is known only when the job connects to the TPU: set `lr_scaling` to "
            "`none` and give the scaled rate",
        },
    ),
    Strategy.TENSOR_PARALLEL: StrategyRow(
        label="Tensor parallel",
        summary="Each layer is split over devices, on one machine or several. For models too large for one device.",
        guide="A layer is split over `model_parallel` devices (by default over all devices of the gang). If the gang "
        "has more devices, they form further groups that train on other examples at the same time: 2 workers × 2 "
        "devices with `model_parallel` 2 are two groups of two. `model_parallel` must divide the number of devices. "
        "The recipe gives the layouts, or Trainyard derives them for dense, embedding and attention layers. The "
        "processes share the parameters only if `model_parallel` is larger than `devices_per_worker`; otherwise each "
        "process holds all of them. Training computes in float32, and the gang validates. Writing a checkpoint gathers "
        "a quarter of a GiB at a time. The checkpoint can be used with any other split, or by a strategy whose devices "
        "hold the whole model. The first worker gathers the whole final model.",
        module="tensor.tensor_parallel",
        reads=_GANG | {"model_parallel"},
        defaults=_SEVERAL | {"model_parallel": _ALL_DEVICES},
        split=Split.GROUPS,
        keras=(Keras.KERAS3,),
        other_keras=_KERAS_3,
        script_keras=Keras.TF_KERAS,
        limits=(
            Limit(
                "model_parallel",
                lambda s: s.workers * s.devices_per_worker % s.model_parallel > 0,
                "{s.model_parallel} does not divide the {devices} devices of the gang ({s.workers} × "
                "{s.devices_per_worker}): use one of {divisors}",
            ),
        ),
        refuses={
            "accumulation": "{label} computes the whole batch of a step at once: set `accumulation` to 1 and use a "
            "smaller batch, or more devices",
            "precision": "the layers that {label} splits compute in float32: set `precision` to `float32`, or choose "
            "another synchronous strategy",
            "jit": "{label} splits a step with DTensor, without XLA: leave `jit` out, or choose another synchronous "
            "strategy",
            "validation": _NO_WHOLE_MODEL,
        },
    ),
    Strategy.PIPELINE: StrategyRow(
        label="Pipeline",
        summary="Consecutive layers on different devices; parts of a batch pass through them one after the other.",
        guide="Use it for a model that is too large for one device and consists of consecutive stages. The recipe "
        "declares the stages. Each device has one stage, and each batch is divided into `micro_batches` parts. With p "
        "stages and m micro-batches, a stage is idle for at least (p - 1) / (m + p - 1) of a step. The job page shows "
        "the measured share.",
        module="pipe.pipeline",
        reads=_GANG | {"micro_batches", "precision"},
        defaults=_SEVERAL,
        split=Split.STAGES,
        no_scripts="a pipeline needs the stages of a recipe: make the program a recipe, or run it under "
        "`multi_worker_mirrored` and split the model there",
        leader_drives=True,
        keras=(Keras.KERAS3,),
        other_keras=_KERAS_3,
        shares_checkpoints=False,
        measured=("bubble",),
        limits=(
            Limit(
                "workers",
                lambda s: s.workers * s.devices_per_worker < 2,
                "a pipeline has one stage per device and needs at least two: use more workers, or more devices per "
                "worker",
            ),
        ),
        refuses={
            "accumulation": "a pipeline already sums the gradients of its micro-batches: set `accumulation` to 1 and "
            "raise `micro_batches`",
            "validation": _NO_WHOLE_MODEL,
        },
    ),
}
_READ = [row.reads for row in STRATEGIES.values()]
PARTICULAR = frozenset.union(*_READ) - frozenset.intersection(*_READ)
"""The fields that some strategies read. Every other field of a job means the same under all of them."""


def row_named(strategy: str) -> StrategyRow | None:
    """The row of a strategy by its name; None for an unknown one."""
    return STRATEGIES[Strategy(strategy)] if strategy in set(Strategy) else None


def label(strategy: str) -> str:
    """The strategy as people say it; an unknown one as it is written."""
    row = row_named(strategy)
    return row.label if row else str(strategy)


def readers_of(field: str) -> tuple[Strategy, ...]:
    """The strategies that read a field of `PARTICULAR`."""
    return tuple(strategy for strategy, row in STRATEGIES.items() if field in row.reads)


def fields_read(strategy: Strategy, kind: Kind) -> list[Field]:
    """The fields that mean something to a job of this strategy and kind. A script builds its strategy itself."""
    unread = PARTICULAR - STRATEGIES[strategy].reads
    return [row for row in FIELDS.values() if row.only in (None, kind) and row.name not in unread]


def defaults_of(strategy: Strategy, kind: Kind, given: Mapping[str, Any]) -> dict[str, int]:
    """What fields are under a strategy unless they are given, where that is not their default everywhere."""
    own = {name: value for name, value in STRATEGIES[strategy].defaults.items() if FIELDS[name].only in (None, kind)}
    plain = {name: value for name, value in own.items() if isinstance(value, int)}
    known = {name: row.default for name, row in FIELDS.items()} | plain | dict(given)
    return {name: value if isinstance(value, int) else value.of(known) for name, value in own.items()}


def default_in_words(row: Field) -> str:
    """`1; 2 under mirrored, central_storage`."""
    own: dict[str, list[str]] = {}
    for strategy, each in STRATEGIES.items():
        if row.name in each.defaults:
            value = each.defaults[row.name]
            own.setdefault(value.words if isinstance(value, Derived) else str(value), []).append(strategy.value)
    everywhere = "" if row.default in (None, "", [], {}) else str(row.default).lower()
    return "; ".join([everywhere, *(f"{value} under {', '.join(names)}" for value, names in own.items())])


def broken_limits(spec: JobSpec) -> list[tuple[str, str]]:
    """What the job's strategy does not do of what it asks for, as (field, sentence)."""
    row = STRATEGIES[spec.strategy]
    broken = [(limit.field, limit.sentence) for limit in row.limits if limit.broken(spec)]
    broken += [(name, sentence) for name, sentence in row.refuses.items() if is_changed(FIELDS[name], spec)]
    if row.no_scripts and spec.kind is Kind.SCRIPT:
        broken.append(("strategy", row.no_scripts))
    if spec.kind is Kind.RECIPE and spec.keras not in (None, *row.keras):
        broken.append(("keras", row.other_keras))
    return [(field, filled(sentence, spec)) for field, sentence in broken]


def is_changed(row: Field, spec: JobSpec) -> bool:
    """Whether a field is something else than its default; no is not something else than nothing."""
    return bool((getattr(spec, row.name) or None) != (row.default or None))


def filled(sentence: str, spec: JobSpec) -> str:
    """A sentence with the job's own numbers and names."""
    devices = spec.workers * spec.devices_per_worker
    divisors = ", ".join(str(number) for number in range(1, min(devices, 64) + 1) if devices % number == 0)
    return sentence.format(s=spec, label=label(spec.strategy), devices=devices, divisors=divisors)
