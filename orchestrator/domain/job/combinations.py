"""What cannot be asked for together, each with the field it stands at and one sentence that says why and what to do.
Checked before any process starts, by `services/jobs/submission.py`.

`refusals` needs the request alone, `refusals_in` the cluster as well. What one strategy does not do stands in its row
(`worker_agent/protocol/job/strategies.py`); the rules here hold under all of them. Of several broken rules at one field
the first is told. Names that a request is written with stand in backquotes; a form puts what it calls them in their
place (`dashboard/labels.py`).
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from orchestrator.domain.placement.planning import ClusterView
from worker_agent.protocol.job.choices import Communication, CrossDevice, LrScaling, Validator
from worker_agent.protocol.job.job_spec import FIELDS, JobSpec
from worker_agent.protocol.job.recipe_text import RecipeInfo
from worker_agent.protocol.job.strategies import PARTICULAR, STRATEGIES, broken_limits, filled, is_changed, readers_of
from worker_agent.protocol.job.strategy_row import Limit, Split
from worker_agent.protocol.states import DeviceKind, Kind

Errors = list[tuple[str, str]]

# What a strategy's sizes are when it does not read the field, where that is not the default of the form.
_FIXED_SIZES = {
    "workers": "{label} runs in one process: set 1, or choose `multi_worker_mirrored`",
    "devices_per_worker": "{label} uses one device: set 1, or choose `mirrored`",
    "ps": "{label} has no parameter servers: set 0, or choose `parameter_server`",
}


@dataclass(frozen=True)
class ClusterLimit:
    """One that depends on the machines."""

    field: str
    broken: Callable[[JobSpec, ClusterView], bool]
    sentence: str


LIMITS = (
    Limit(
        "tpu",
        lambda s: "tpu" in STRATEGIES[s.strategy].reads and not s.tpu,
        "give the TPU's name, its address (grpc://…), or `local` for the node's own",
    ),
    Limit(
        "env",
        lambda s: s.kind is Kind.RECIPE and s.env.get("KERAS_BACKEND", "tensorflow") != "tensorflow",
        "KERAS_BACKEND: a recipe is trained by TensorFlow: leave it out, or run the program as a script",
    ),
    Limit(
        "learning_rate",
        lambda s: s.lr_scaling != LrScaling.NONE and s.learning_rate is None,
        "`{s.lr_scaling}` scaling multiplies a learning rate: give one",
    ),
    Limit(
        "warmup_epochs",
        lambda s: s.warmup_epochs > s.epochs,
        "a number from 0 to {s.epochs}, not {s.warmup_epochs:g} (the job has {s.epochs} epochs)",
    ),
    Limit(
        "warmup_epochs",
        lambda s: s.lr_scaling == LrScaling.NONE and s.warmup_epochs > 0,
        "warm-up leads to a scaled rate: set `lr_scaling` to `linear` or `sqrt`, or `warmup_epochs` to 0",
    ),
    Limit(
        "validation",
        lambda s: s.validation == Validator.EVALUATOR and s.kind is Kind.RECIPE and s.checkpoints_kept == 0,
        "an evaluator reads checkpoints, and none are kept: set `checkpoints_kept` to 1 or more, or `validation` to "
        "`gang`",
    ),
    Limit(
        "checkpoint_steps",
        lambda s: s.checkpoint_steps > 0 and s.checkpoints_kept == 0,
        "no checkpoint would be kept: set `checkpoints_kept` to 1 or more, or `checkpoint_steps` to 0",
    ),
)
CLUSTER_LIMITS = (
    ClusterLimit(
        "communication",
        lambda s, cluster: s.communication == Communication.NCCL and not _has_gpu(cluster),
        "NCCL needs GPUs, and no node of cluster {s.cluster} has one: choose `auto` or `ring`",
    ),
    ClusterLimit(
        "cross_device",
        lambda s, cluster: s.cross_device == CrossDevice.NCCL and not _has_gpu(cluster),
        "NCCL needs GPUs, and no node of cluster {s.cluster} has one: choose `auto`, `hierarchical_copy` or "
        "`reduction_to_one_device`",
    ),
)


def refusals(spec: JobSpec, recipe: RecipeInfo | None = None, *, given: Collection[str] = ()) -> Errors:
    """What is wrong with a request in itself, as (field, sentence); `recipe` is what its program declares, if known.

    `given` are the fields that the request names: one that its program never sees is refused at its default, too."""
    broken = [(limit.field, filled(limit.sentence, spec)) for limit in LIMITS if limit.broken(spec)]
    others = [*_of_the_other_kind(spec, given), *broken_limits(spec), *broken]
    return first_of_each_field([*others, *_undeclared(spec, recipe), *_unread(spec)])


def refusals_in(spec: JobSpec, cluster: ClusterView) -> Errors:
    """What the machines of a cluster cannot do; nothing while it has none."""
    broken = [limit for limit in CLUSTER_LIMITS if cluster.nodes and limit.broken(spec, cluster)]
    return first_of_each_field([(limit.field, filled(limit.sentence, spec)) for limit in broken])


def first_of_each_field(found: Errors) -> Errors:
    """One sentence for each field, the first."""
    first: dict[str, str] = {}
    for field, sentence in found:
        first.setdefault(field, sentence)
    return list(first.items())


def _of_the_other_kind(spec: JobSpec, given: Collection[str]) -> Iterator[tuple[str, str]]:
    """Fields that the program's kind does not read, and yet are given or differ from their default."""
    if spec.kind is Kind.SCRIPT and (spec.params or "params" in given):
        yield "params", _unseen("params")
    for row in FIELDS.values():
        if row.only is Kind.RECIPE and spec.kind is Kind.SCRIPT and (row.name in given or is_changed(row, spec)):
            yield row.name, _unseen(row.name)
        if row.only is Kind.SCRIPT and spec.kind is Kind.RECIPE and is_changed(row, spec):
            remedy = f"leave it out ({row.instead}), or set `kind` to `script`"
            yield row.name, f"only scripts have `{row.name}`: {remedy}"


def _unseen(field: str) -> str:
    return f"a script does not get `{field}`: leave it out and pass it in the program's arguments"


def _undeclared(spec: JobSpec, recipe: RecipeInfo | None) -> Iterator[tuple[str, str]]:
    """What the strategy needs of a recipe and this one does not give."""
    is_cut = STRATEGIES[spec.strategy].split is Split.STAGES
    if is_cut and spec.kind is Kind.RECIPE and recipe is not None and not recipe.stages:
        yield (
            "strategy",
            "the recipe does not define its stages: give it build_stages(params, count), which returns the names "
            "of the model's layers stage by stage, or choose another strategy",
        )


def _unread(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Fields of other strategies that differ from their default."""
    for name in PARTICULAR - STRATEGIES[spec.strategy].reads:
        if is_changed(FIELDS[name], spec):
            others = " or ".join(f"`{strategy.value}`" for strategy in readers_of(name))
            sentence = _FIXED_SIZES.get(name, f"{{label}} does not read `{name}`: leave it out, or choose {others}")
            yield name, filled(sentence, spec)


def _has_gpu(cluster: ClusterView) -> bool:
    return any(node.count(DeviceKind.GPU) for node in cluster.nodes)
