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
    "validation": "{label} is one process, which validates by itself: set `validation` to `gang`, or choose "
    "`multi_worker_mirrored`",
    "tf_config": "{label} is one process and needs no TF_CONFIG: leave it empty, or choose `multi_worker_mirrored`",
}
_NEVER_MEET = (
    "{label} knows one process: {s.workers} workers would train {s.workers} models that never meet. Set 1, or choose "
    "`multi_worker_mirrored`"
)
_NO_WHOLE_MODEL = (
    "no single process holds a whole model under {label}, so an evaluator cannot either: set `validation` to `gang`"
)
_KERAS_3 = "{label} splits models of Keras 3: leave `keras` empty"

STRATEGIES: Mapping[Strategy, StrategyRow] = {
    Strategy.ONE_DEVICE: StrategyRow(
        label="One device",
        summary="A single GPU or CPU slot. The base to measure others against.",
        guide="Take it while a program is written.",
        module="mirrored.one_device",
        class_name="OneDeviceStrategy",
        reads=_MATHS,
        refuses=_ONE_PROCESS,
    ),
    Strategy.MIRRORED: StrategyRow(
        label="Mirrored",
        summary="Several devices of one machine, gradients summed each step.",
        guide="For several GPUs and a model that fits each of them: every device holds a copy and computes its part of "
        "the batch. `cross_device` chooses how gradients are summed: `nccl` on GPUs, `hierarchical_copy` and "
        "`reduction_to_one_device` anywhere. Where a node has no GPU its logical CPU devices do the same, which shows "
        "that a program is right and not that it is fast.",
        module="mirrored.mirrored",
        class_name="MirroredStrategy",
        reads=_MATHS | {"devices_per_worker", "cross_device"},
        defaults={"devices_per_worker": 2},
        refuses=_ONE_PROCESS | {"workers": _NEVER_MEET},
    ),
    Strategy.MULTI_WORKER_MIRRORED: StrategyRow(
        label="MultiWorkerMirrored",
        summary="Devices of several machines, gradients summed over the network each step.",
        guide="For even machines with a good network: Mirrored over all of them, one process a machine. "
        "`communication` is `ring`, `nccl` or `auto`; `sharding` says how examples are shared out; `chief` only gives "
        "the first worker that name. The slowest worker sets the pace, and when one is lost the gang has to be "
        "launched again. On CPUs TensorFlow uses one device of each process: take more workers instead.",
        module="mirrored.multi_worker_mirrored",
        class_name="MultiWorkerMirroredStrategy",
        reads=_MATHS | _GANG | {"chief", "communication", "sharding", "validation"},
        defaults=_SEVERAL,
        one_cpu_device=True,
    ),
    Strategy.PARAMETER_SERVER: StrategyRow(
        label="ParameterServer",
        summary="Workers run at their own pace; the variables live on servers.",
        guide="For many or uneven machines, or very large embeddings: variables lie on `ps` processes, each worker "
        "fetches them, computes and updates, the chief hands out the work. Updates are asynchronous: a gradient may be "
        "some updates old when it is applied (staleness, shown on the job page), so results differ from run to run. "
        "The global batch is what one worker computes for one update, shared by its devices. Each example is trained "
        "on once an epoch: the chief deals out batches by number, and every worker reads all examples to find its own. "
        "Variables larger than `min_shard_bytes` are split over the servers. No gradient accumulation, mixed precision "
        "or XLA. A worker that is lost begins anew by itself while the others go on "
        "([reliability](reliability.md#parts-of-a-gang)).",
        module="served.parameter_server",
        class_name="ParameterServerStrategy",
        reads=_GANG | {"ps", "min_shard_bytes", "validation"},
        defaults=_SEVERAL | {"ps": 1},
        split=Split.ONE_WORKER,
        coordinated=True,
        served=True,
        keras=(Keras.TF_KERAS,),
        other_keras="Keras 3 loses updates under {label}: choose `tf_keras`, or leave `keras` empty",
        script_keras=Keras.TF_KERAS,
        shares_checkpoints=False,
        measured=("staleness", "staleness_max"),
        limits=(Limit("ps", lambda s: s.ps == 0, "{label} needs at least one parameter server: set 1 or more"),),
        refuses={
            "chief": "{label} always has a chief, which only coordinates: leave this out",
            "accumulation": "a worker of {label} applies each update at once: set `accumulation` to 1 and a smaller "
            "batch, or choose a synchronous strategy",
            "precision": "the variables on parameter servers are updated in float32: set `precision` to `float32`, or "
            "choose a synchronous strategy",
            "jit": "XLA cannot compile a step whose variables lie in other processes: leave `jit` out, or choose a "
            "synchronous strategy",
        },
    ),
    Strategy.CENTRAL_STORAGE: StrategyRow(
        label="Central storage",
        summary="Several devices of one machine compute; the variables live once, in its main memory.",
        guide="For models whose variables do not fit a device though each layer does, or machines with slow links "
        "between devices. Otherwise Mirrored is faster.",
        module="mirrored.central_storage",
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
        guide="`tpu` is the name or the address of a TPU that the node can reach, or `local` for its own. It is looked "
        "for before anything is built, within a time limit of Trainyard's own; where there is none the job says so. "
        "Give the learning rate that you mean: how many cores there are is known only then.",
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
            "devices_per_worker": "a TPU's cores are counted when it is reached: set 1",
            "jit": "whatever runs on a TPU is compiled by XLA anyway: leave `jit` out",
            "lr_scaling": "how many replicas a TPU has is known when it is reached: set `lr_scaling` to `none` and "
            "give the scaled rate",
        },
    ),
    Strategy.TENSOR_PARALLEL: StrategyRow(
        label="Tensor parallel",
        summary="Each layer split over devices, on one machine or several, for models too large for one device.",
        guide="A layer is split over `model_parallel` devices (all of the gang's if you do not say); the remaining "
        "factor of the devices trains on other examples at the same time, so 2 workers × 2 devices with "
        "`model_parallel` 2 are two groups of two. `model_parallel` has to divide the number of devices. Layouts come "
        "from the recipe, or are derived for dense, embedding and attention layers. Processes share the parameters out "
        "only where `model_parallel` is larger than `devices_per_worker`; else each holds them all. It computes in "
        "float32 and validates by the gang. A checkpoint brings a quarter of a GiB together at a time, and is taken up "
        "under any other split, or by a strategy whose devices hold the whole model; the final model is brought "
        "together as a whole, in the first worker.",
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
            "accumulation": "{label} computes a step's whole batch at once: set `accumulation` to 1 and a smaller "
            "batch, or split it over more devices",
            "precision": "the layers that {label} splits compute in float32: set `precision` to `float32`, or choose "
            "another synchronous strategy",
            "jit": "DTensor cuts a step of {label} for the devices, without XLA: leave `jit` out, or choose another "
            "synchronous strategy",
            "validation": _NO_WHOLE_MODEL,
        },
    ),
    Strategy.PIPELINE: StrategyRow(
        label="Pipeline",
        summary="Consecutive layers on different devices; parts of a batch walk through them one behind the other.",
        guide="For a model too large for one device that falls into consecutive stages, which the recipe declares: one "
        "stage per device, `micro_batches` parts of each batch. With p stages and m micro-batches a stage is idle "
        "(p - 1) / (m + p - 1) of a step at best; the job page shows what was measured.",
        module="pipe.pipeline",
        reads=_GANG | {"micro_batches", "precision"},
        defaults=_SEVERAL,
        split=Split.STAGES,
        no_scripts="a pipeline is cut out of a recipe's stages: make the program a recipe, or run it under "
        "`multi_worker_mirrored` and cut it there",
        served=True,
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
    """Whether a field is something else than its default."""
    return bool(getattr(spec, row.name) != row.default)


def filled(sentence: str, spec: JobSpec) -> str:
    """A sentence with the job's own numbers and names."""
    devices = spec.workers * spec.devices_per_worker
    divisors = ", ".join(str(number) for number in range(1, min(devices, 64) + 1) if devices % number == 0)
    return sentence.format(s=spec, label=label(spec.strategy), devices=devices, divisors=divisors)
