"""What cannot be asked for together: a table of rules, each with the field it stands at, when it is broken, and one
sentence that says why and what to do. Checked before any process starts, by `services/jobs/submission.py`.

`refusals` needs the request alone, `refusals_in` the cluster as well. Of several broken rules at one field the first
is told. A rule's sentence is filled from the spec (`{s.workers}`) and from the strategy's name (`{label}`). Names that
a request is written with stand in backquotes; a form puts what it calls them in their place (`dashboard/labels.py`).
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import msgspec

from orchestrator.domain.job import strategies
from orchestrator.domain.job.recipes import RecipeInfo
from orchestrator.domain.job.strategies import GANGS, PARTICULAR, WITH_EVALUATOR
from orchestrator.domain.placement.planning import ClusterView, lacks_tpu
from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.protocol.states import DeviceKind, Keras, Kind, Strategy

Errors = list[tuple[str, str]]

# Strategies under which no device holds a whole model.
SPLIT = frozenset({Strategy.TENSOR_PARALLEL, Strategy.PIPELINE})

_DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(JobSpec)}
# What Trainyard's own loop does with a recipe; a program of one's own does it itself, or not.
_LOOP_ALONE = (
    "epochs",
    "global_batch_size",
    "learning_rate",
    "lr_scaling",
    "warmup_epochs",
    "seed",
    "checkpoint_steps",
    "checkpoints_kept",
    "resume_from",
    *(field for field in PARTICULAR if field not in strategies.OF_SCRIPTS),
)
_SCRIPT_ALONE = {
    "arguments": "declare it in PARAMS and set it there",
    "working_dir": "a recipe is loaded from the folder it lies in",
    "tf_config": "Trainyard writes a recipe's TF_CONFIG",
    "requirements": "import only what the nodes have installed",
}
# What a strategy's sizes are when it does not read the field, where that is not the default of the form.
_FIXED_SIZES = {
    "workers": "{label} runs in one process: set 1, or choose `multi_worker_mirrored`",
    "devices_per_worker": "{label} uses one device: set 1, or choose `mirrored`",
    "ps": "{label} has no parameter servers: set 0, or choose `parameter_server`",
}


@dataclass(frozen=True)
class Rule:
    """One combination that cannot be: it is broken where `broken` is true of the spec."""

    field: str
    broken: Callable[[JobSpec], bool]
    sentence: str


@dataclass(frozen=True)
class ClusterRule:
    """One that depends on the machines."""

    field: str
    broken: Callable[[JobSpec, ClusterView], bool]
    sentence: str


RULES = (
    # Surroundings
    Rule(
        "env",
        lambda s: s.kind is Kind.RECIPE and s.env.get("KERAS_BACKEND", "tensorflow") != "tensorflow",
        "KERAS_BACKEND: a recipe is trained by TensorFlow: leave it out, or run the program as a script",
    ),
    # Sizes
    Rule(
        "workers",
        lambda s: s.strategy in (Strategy.MIRRORED, Strategy.CENTRAL_STORAGE) and s.workers > 1,
        "{label} knows one process: {s.workers} workers would train {s.workers} models that never meet. Set 1, or "
        "choose `multi_worker_mirrored`",
    ),
    Rule(
        "devices_per_worker",
        lambda s: s.strategy is Strategy.TPU and s.devices_per_worker > 1,
        "a TPU's cores are counted when it is reached: set 1",
    ),
    Rule(
        "ps",
        lambda s: s.strategy is Strategy.PARAMETER_SERVER and s.ps == 0,
        "{label} needs at least one parameter server: set 1 or more",
    ),
    Rule(
        "chief",
        lambda s: s.chief and s.strategy is Strategy.PARAMETER_SERVER,
        "ParameterServer always has a chief, which only coordinates: leave this out",
    ),
    Rule(
        "model_parallel",
        lambda s: s.strategy is Strategy.TENSOR_PARALLEL and s.workers * s.devices_per_worker % s.model_parallel > 0,
        "{s.model_parallel} does not divide the {devices} devices of the gang ({s.workers} × {s.devices_per_worker}): "
        "use one of {divisors}",
    ),
    Rule(
        "workers",
        lambda s: s.strategy is Strategy.PIPELINE and s.workers * s.devices_per_worker < 2,
        "a pipeline has one stage per device and needs at least two: use more workers, or more devices per worker",
    ),
    Rule(
        "tpu",
        lambda s: s.strategy is Strategy.TPU and not s.tpu,
        "give the TPU's name, its address (grpc://…), or `local` for the node's own",
    ),
    # Arithmetic
    Rule(
        "accumulation",
        lambda s: s.strategy is Strategy.PIPELINE and s.accumulation > 1,
        "a pipeline already sums the gradients of its micro-batches: set `accumulation` to 1 and raise `micro_batches`",
    ),
    Rule(
        "accumulation",
        lambda s: s.strategy is Strategy.PARAMETER_SERVER and s.accumulation > 1,
        "a worker of ParameterServer applies each update at once: set `accumulation` to 1 and a smaller batch, or "
        "choose a synchronous strategy",
    ),
    Rule(
        "accumulation",
        lambda s: s.strategy is Strategy.TENSOR_PARALLEL and s.accumulation > 1,
        "{label} computes a step's whole batch at once: set `accumulation` to 1 and a smaller batch, or split it over "
        "more devices",
    ),
    Rule(
        "precision",
        lambda s: s.strategy is Strategy.TENSOR_PARALLEL and s.precision != "float32",
        "the layers that {label} splits compute in float32: set `precision` to `float32`, or choose another "
        "synchronous strategy",
    ),
    Rule(
        "precision",
        lambda s: s.strategy is Strategy.PARAMETER_SERVER and s.precision != "float32",
        "the variables on parameter servers are updated in float32: set `precision` to `float32`, or choose a "
        "synchronous strategy",
    ),
    Rule(
        "precision",
        lambda s: s.strategy is Strategy.TPU and s.precision == "mixed_float16",
        "a TPU computes in bfloat16, not in float16: choose `mixed_bfloat16`",
    ),
    Rule(
        "precision",
        lambda s: (
            s.strategy is Strategy.CENTRAL_STORAGE and s.precision == "mixed_float16" and s.keras is not Keras.TF_KERAS
        ),
        "Keras 3 cannot scale the loss under central storage: choose `mixed_bfloat16`, or `keras` `tf_keras`",
    ),
    Rule(
        "jit",
        lambda s: s.strategy is Strategy.TPU and s.jit,
        "whatever runs on a TPU is compiled by XLA anyway: leave `jit` out",
    ),
    Rule(
        "jit",
        lambda s: s.strategy is Strategy.TENSOR_PARALLEL and s.jit,
        "DTensor cuts a step of {label} for the devices, without XLA: leave `jit` out, or choose another synchronous "
        "strategy",
    ),
    Rule(
        "jit",
        lambda s: s.strategy is Strategy.PARAMETER_SERVER and s.jit,
        "XLA cannot compile a step whose variables lie in other processes: leave `jit` out, or choose a synchronous "
        "strategy",
    ),
    Rule(
        "lr_scaling",
        lambda s: s.strategy is Strategy.TPU and s.lr_scaling != "none",
        "how many replicas a TPU has is known when it is reached: set `lr_scaling` to `none` and give the scaled rate",
    ),
    Rule(
        "learning_rate",
        lambda s: s.lr_scaling != "none" and s.learning_rate is None,
        "`{s.lr_scaling}` scaling multiplies a learning rate: give one",
    ),
    Rule(
        "warmup_epochs",
        lambda s: s.lr_scaling == "none" and s.warmup_epochs > 0,
        "warm-up leads to a scaled rate: set `lr_scaling` to `linear` or `sqrt`, or this to 0",
    ),
    # Validation and checkpoints
    Rule(
        "validation",
        lambda s: s.validation == "evaluator" and s.strategy not in GANGS,
        "{label} is one process, which validates by itself: set `validation` to `gang`, or choose "
        "`multi_worker_mirrored`",
    ),
    Rule(
        "validation",
        lambda s: s.validation == "evaluator" and s.strategy not in WITH_EVALUATOR,
        "no single process holds a whole model under {label}, and so neither could an evaluator: set `validation` to "
        "`gang`",
    ),
    Rule(
        "validation",
        lambda s: s.validation == "evaluator" and s.kind is Kind.RECIPE and s.checkpoints_kept == 0,
        "an evaluator reads checkpoints, and none are kept: set `checkpoints_kept` to 1 or more, or `validation` to "
        "`gang`",
    ),
    Rule(
        "checkpoint_steps",
        lambda s: s.checkpoint_steps > 0 and s.checkpoints_kept == 0,
        "none would be kept: set `checkpoints_kept` to 1 or more, or `checkpoint_steps` to 0",
    ),
    # Keras
    Rule(
        "keras",
        lambda s: s.kind is Kind.RECIPE and s.strategy is Strategy.PARAMETER_SERVER and s.keras is Keras.KERAS3,
        "Keras 3 loses updates under ParameterServer: choose `tf_keras`, or leave `keras` empty",
    ),
    Rule(
        "keras",
        lambda s: s.kind is Kind.RECIPE and s.strategy in SPLIT and s.keras is Keras.TF_KERAS,
        "{label} splits models of Keras 3: leave `keras` empty",
    ),
    # Scripts
    Rule(
        "strategy",
        lambda s: s.kind is Kind.SCRIPT and s.strategy is Strategy.PIPELINE,
        "a pipeline is cut out of a recipe's stages: make the program a recipe, or run it under "
        "`multi_worker_mirrored` and cut it there",
    ),
    Rule(
        "tf_config",
        lambda s: s.kind is Kind.SCRIPT and bool(s.tf_config) and s.strategy not in GANGS,
        "{label} is one process and needs no TF_CONFIG: leave it empty, or choose `multi_worker_mirrored`",
    ),
)
CLUSTER_RULES = (
    ClusterRule(
        "tpu",
        lambda s, cluster: all(lacks_tpu(s, node) for node in cluster.nodes),
        "no node of cluster {s.cluster} has a TPU of its own: give the name or address of one, or choose a strategy "
        "for the devices that its nodes have",
    ),
    ClusterRule(
        "communication",
        lambda s, cluster: s.communication == "nccl" and _largest(cluster, DeviceKind.GPU) == 0,
        "NCCL speaks between GPUs, and no node of cluster {s.cluster} has one: choose `auto` or `ring`",
    ),
    ClusterRule(
        "cross_device",
        lambda s, cluster: s.cross_device == "nccl" and _largest(cluster, DeviceKind.GPU) == 0,
        "NCCL speaks between GPUs, and no node of cluster {s.cluster} has one: choose `auto`, `hierarchical_copy` or "
        "`reduction_to_one_device`",
    ),
)


def refusals(spec: JobSpec, recipe: RecipeInfo | None = None, *, given: Collection[str] = ()) -> Errors:
    """What is wrong with a request in itself, as (field, sentence); `recipe` is what its program declares, if known.

    `given` are the fields that the request names: one that its program never sees is refused at its default, too."""
    broken = [(rule.field, _filled(rule.sentence, spec)) for rule in RULES if rule.broken(spec)]
    return first_of_each_field([*_of_the_other_kind(spec, given), *broken, *_undeclared(spec, recipe), *_unread(spec)])


def refusals_in(spec: JobSpec, cluster: ClusterView) -> Errors:
    """What the machines of a cluster cannot do; nothing while it has none."""
    if not cluster.nodes:
        return []
    found = [(rule.field, _filled(rule.sentence, spec)) for rule in CLUSTER_RULES if rule.broken(spec, cluster)]
    return first_of_each_field(found)


def _of_the_other_kind(spec: JobSpec, given: Collection[str]) -> Iterator[tuple[str, str]]:
    """Fields that the program's kind does not read, and yet are given or differ from their default."""
    if spec.kind is Kind.SCRIPT:
        for field in ("params", *_LOOP_ALONE):
            if field in given or getattr(spec, field) != _default(field):
                yield field, f"a script never sees `{field}`: leave it out and pass it among the program's arguments"
        return
    for field, remedy in _SCRIPT_ALONE.items():
        if getattr(spec, field):
            yield field, f"only scripts have `{field}`: leave it out ({remedy}), or set `kind` to `script`"


def _undeclared(spec: JobSpec, recipe: RecipeInfo | None) -> Iterator[tuple[str, str]]:
    """What the strategy needs of a recipe and this one does not give."""
    if spec.strategy is Strategy.PIPELINE and spec.kind is Kind.RECIPE and recipe is not None and not recipe.stages:
        yield (
            "strategy",
            "the recipe does not say where it can be cut: give it build_stages(params, count), which returns the names "
            "of the model's layers stage by stage, or choose another strategy",
        )


def _unread(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Fields of other strategies that differ from their default."""
    reads = strategies.WORDS[spec.strategy].fields
    for field in PARTICULAR:
        if field in reads or getattr(spec, field) == _default(field):
            continue
        others = [f"`{strategy.value}`" for strategy in strategies.readers_of(field)]
        sentence = _FIXED_SIZES.get(
            field, f"{{label}} does not read `{field}`: leave it out, or choose {' or '.join(others)}"
        )
        yield field, _filled(sentence, spec)


def _filled(sentence: str, spec: JobSpec) -> str:
    devices = spec.workers * spec.devices_per_worker
    divisors = ", ".join(str(number) for number in range(1, min(devices, 64) + 1) if devices % number == 0)
    return sentence.format(s=spec, label=strategies.label(spec.strategy), devices=devices, divisors=divisors)


def first_of_each_field(found: Errors) -> Errors:
    """One sentence for each field, the first."""
    first: dict[str, str] = {}
    for field, sentence in found:
        first.setdefault(field, sentence)
    return list(first.items())


def _default(field: str) -> object:
    return {} if field == "params" else _DEFAULTS[field]


def _largest(cluster: ClusterView, kind: DeviceKind) -> int:
    return max(node.count(kind) for node in cluster.nodes)
