"""From a request (form, REST) to a JobSpec, or to sentences at its fields; and the preview while the form is filled in.

Views and REST call `check` and `preview`; `services/jobs.py` submits what `check` accepted. Neither raises on bad
input, and neither writes anything.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import msgspec

from orchestrator.domain import batching, planning, validation
from orchestrator.domain.batching import BatchPlan, Indivisible
from orchestrator.domain.planning import Never, NodeView, NotNow, PlannedReplica
from orchestrator.domain.recipes import RecipeInfo
from orchestrator.models import Cluster, User
from orchestrator.services import code
from orchestrator.services.code import Program
from orchestrator.services.errors import FieldError
from orchestrator.services.snapshot import cluster_view
from worker_agent.protocol.job_spec import CodeRef, JobSpec

PLACEHOLDER_CODE = CodeRef(sha256="", entry="")
SHAPE_FIELDS = ("strategy", "workers", "ps", "devices_per_worker")


@dataclass(frozen=True)
class Checked:
    """What a request comes to: `spec`, `program` and `cluster` when there are no errors; `info` as far as known."""

    spec: JobSpec | None
    errors: list[FieldError]
    info: RecipeInfo | None
    program: Program | None = None
    cluster: Cluster | None = None


@dataclass(frozen=True)
class Preview:
    """What would happen if the request were submitted now. Parts that the errors make unknowable are empty.

    `waiting_for` "" with a placement means it would start at once. `tf_configs` is keyed `worker:0`. `nearest` are the
    global batch sizes around the given one that divide, when it does not.
    """

    errors: list[FieldError]
    batch: BatchPlan | None = None
    placement: tuple[PlannedReplica, ...] = ()
    waiting_for: str = ""
    tf_configs: dict[str, dict[str, object]] = field(default_factory=dict)
    nodes: tuple[NodeView, ...] = ()
    nearest: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Read:
    """A request taken apart; `spec` also for an incomplete request, when its gang's shape is sound."""

    errors: list[FieldError]
    spec: JobSpec | None
    batch: BatchPlan | None
    cluster: Cluster | None
    program: Program | None
    info: RecipeInfo | None
    nearest: tuple[int, ...] = ()


def check(request: object, *, by: User) -> Checked:
    """The job that the request describes, or everything that is wrong with it."""
    read = _read(request, by=by)
    errors = list(read.errors)
    if read.spec and read.cluster:
        outcome = planning.place(read.spec, cluster_view(read.cluster))
        if isinstance(outcome, Never):
            errors.append(FieldError(outcome.field, outcome.message))
    if errors:
        return Checked(None, errors, read.info)
    return Checked(read.spec, [], read.info, read.program, read.cluster)


def preview(request: object, *, by: User) -> Preview:
    """Batch arithmetic, placement and TF_CONFIG of a request as far as it goes, also while it is incomplete."""
    read = _read(request, by=by)
    if read.cluster is None:
        return Preview(read.errors, read.batch, nearest=read.nearest)
    view = cluster_view(read.cluster)
    known = partial(Preview, batch=read.batch, nodes=view.nodes, nearest=read.nearest)
    if read.spec is None:
        return known(read.errors)
    outcome = planning.place(read.spec, view)
    if isinstance(outcome, Never):
        return known([*read.errors, FieldError(outcome.field, outcome.message)])
    if isinstance(outcome, NotNow):
        return known(read.errors, waiting_for=outcome.waiting_for)
    configs = {replica.label: replica.tf_config for replica in outcome.replicas if replica.tf_config is not None}
    return known(read.errors, placement=outcome.replicas, tf_configs=configs)


def _read(request: object, *, by: User) -> _Read:
    if not isinstance(request, Mapping):
        return _Read([FieldError("", "a job is described by an object of fields")], None, None, None, None, None)
    cluster, errors = _cluster(request.get("cluster"))
    resolved = code.resolve(request, by=by)
    program = resolved if isinstance(resolved, Program) else None
    if not isinstance(resolved, Program):
        errors += resolved.errors
    fields = validation.read_fields(request, program.info if program else None)
    errors += [FieldError(name, message) for name, message in fields.errors]
    broken = {error.field for error in errors}
    batch: BatchPlan | None = None
    nearest: tuple[int, ...] = ()
    if not broken & {*SHAPE_FIELDS, "global_batch_size"}:
        divided = _divide(fields.values)
        if isinstance(divided, Indivisible):
            errors.append(FieldError("global_batch_size", divided.message))
            nearest = divided.nearest
        else:
            batch = divided
    spec = None
    if cluster and not broken & set(SHAPE_FIELDS):
        sound = {name: value for name, value in fields.values.items() if name not in broken}
        given = {"name": "-", "params": {}, "env": {}} | sound
        reference = program.ref if program else PLACEHOLDER_CODE
        spec = msgspec.convert({**given, "cluster": cluster.name, "code": msgspec.to_builtins(reference)}, JobSpec)
    return _Read(errors, spec, batch, cluster, program, resolved.info, nearest)


def _cluster(name: object) -> tuple[Cluster | None, list[FieldError]]:
    found = Cluster.objects.filter(name=name).first() if isinstance(name, str) and name.isprintable() else None
    if found:
        return found, []
    known = ", ".join(Cluster.objects.values_list("name", flat=True)[:20])
    if not known:
        return None, [FieldError("cluster", "no cluster is registered yet: an administrator registers one first")]
    ask = "choose a cluster" if name in (None, "") else "there is no cluster of that name"
    return None, [FieldError("cluster", f"{ask}; there is {known}")]


def _divide(values: Mapping[str, object]) -> BatchPlan | Indivisible:
    spec = msgspec.convert(
        {
            **{name: values[name] for name in (*SHAPE_FIELDS, "global_batch_size")},
            **{name: values[name] for name in ("learning_rate", "lr_scaling", "warmup_epochs") if name in values},
            "name": "-",
            "cluster": "-",
            "code": msgspec.to_builtins(PLACEHOLDER_CODE),
        },
        JobSpec,
    )
    return batching.of_spec(spec)
