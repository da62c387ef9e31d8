"""From a request (form, REST) to a JobSpec, or to sentences at its fields; and the preview while the form is filled in.

Views and REST call `check` and `preview`; `services/jobs/jobs.py` submits what `check` accepted. Neither raises on bad
input, and neither writes anything.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import msgspec

from orchestrator.domain.job import batching, combinations, script_findings, validation
from orchestrator.domain.job.batching import BatchPlan, Indivisible
from orchestrator.domain.job.recipes import RecipeInfo
from orchestrator.domain.placement import node_findings, planning, tf_config_lint
from orchestrator.domain.placement.planning import ClusterView, Never, NodeView, NotNow, Placed, PlannedReplica
from orchestrator.models import Cluster, User
from orchestrator.services.checkpoints import checkpoint_registry
from orchestrator.services.errors import FieldError
from orchestrator.services.nodes.cluster_snapshot import cluster_view
from orchestrator.services.programs import programs
from orchestrator.services.programs.programs import Program
from worker_agent.protocol.findings import Finding
from worker_agent.protocol.job.job_spec import CodeRef, JobSpec
from worker_agent.protocol.job.script_text import ScriptInfo
from worker_agent.protocol.states import Kind, Strategy

PLACEHOLDER_CODE = CodeRef(sha256="", entry="")
# Without these the gang has no shape, and nothing can be said of its batch or its place.
SHAPE_FIELDS = frozenset({"strategy", "kind", "workers", "ps", "devices_per_worker", "chief", "validation"})
ARITHMETIC_FIELDS = SHAPE_FIELDS | {"global_batch_size", "accumulation", "model_parallel", "micro_batches"}


@dataclass(frozen=True)
class Checked:
    """What a request comes to: `spec`, `program` and `cluster` when there are no errors; `info` as far as known;
    warnings are `findings`."""

    spec: JobSpec | None
    errors: list[FieldError]
    info: RecipeInfo | None
    program: Program | None = None
    cluster: Cluster | None = None
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Preview:
    """What would happen if the request were submitted now. Parts that the errors make unknowable are empty.

    `waiting_for` "" with a placement means it would start at once. `tf_configs` is keyed `worker:0`. `nearest` are the
    global batch sizes around the given one that divide, when it does not. `findings` are what was found beyond errors
    at fields: all of a hand-written TF_CONFIG's, of the nodes it would be on, and warnings about a script, whose text
    is `script`.
    """

    errors: list[FieldError]
    batch: BatchPlan | None = None
    placement: tuple[PlannedReplica, ...] = ()
    waiting_for: str = ""
    tf_configs: dict[str, dict[str, object]] = field(default_factory=dict)
    nodes: tuple[NodeView, ...] = ()
    nearest: tuple[int, ...] = ()
    findings: tuple[Finding, ...] = ()
    spec: JobSpec | None = None
    script: ScriptInfo | None = None


@dataclass(frozen=True)
class _Read:
    """A request taken apart; `spec` also for an incomplete request, when its gang's shape is sound; `view` with it."""

    errors: list[FieldError]
    spec: JobSpec | None = None
    batch: BatchPlan | None = None
    cluster: Cluster | None = None
    view: ClusterView | None = None
    program: Program | None = None
    info: RecipeInfo | None = None
    nearest: tuple[int, ...] = ()
    findings: tuple[Finding, ...] = ()


def check(request: object, *, by: User) -> Checked:
    """The job that the request describes, or everything that is wrong with it."""
    read = _read(request, by=by)
    errors, findings = list(read.errors), read.findings
    if read.spec and read.view:
        outcome = planning.place(read.spec, read.view)
        if isinstance(outcome, Never):
            errors.append(FieldError(outcome.field, outcome.message))
        elif isinstance(outcome, Placed):
            of_nodes = _of_nodes(read.spec, read.view, outcome)
            errors += _blocking(of_nodes)
            findings += of_nodes
    if errors:
        return Checked(None, errors, read.info)
    return Checked(read.spec, [], read.info, read.program, read.cluster, findings)


def preview(request: object, *, by: User) -> Preview:
    """Batch arithmetic, placement and TF_CONFIG of a request as far as it goes, also while it is incomplete."""
    read = _read(request, by=by)
    nodes = read.view.nodes if read.view else ()
    script = read.program.script if read.program else None
    known = partial(
        Preview,
        batch=read.batch,
        nodes=nodes,
        nearest=read.nearest,
        findings=read.findings,
        spec=read.spec,
        script=script,
    )
    if read.spec is None or read.view is None:
        return known(read.errors)
    outcome = planning.place(read.spec, read.view)
    if isinstance(outcome, Never):
        return known([*read.errors, FieldError(outcome.field, outcome.message)])
    if isinstance(outcome, NotNow):
        return known(read.errors, waiting_for=outcome.waiting_for)
    configs = {replica.label: replica.tf_config for replica in outcome.replicas if replica.tf_config is not None}
    of_nodes = _of_nodes(read.spec, read.view, outcome)
    errors, findings = [*read.errors, *_blocking(of_nodes)], read.findings + of_nodes
    return known(errors, placement=outcome.replicas, tf_configs=configs, findings=findings)


def _read(request: object, *, by: User) -> _Read:
    if not isinstance(request, Mapping):
        return _Read([FieldError("", "a job is described by an object of fields")])
    cluster, errors = _cluster(request.get("cluster"))
    view = cluster_view(cluster) if cluster else None
    resolved = programs.resolve(request, by=by)
    program = resolved if isinstance(resolved, Program) else None
    if not isinstance(resolved, Program):
        errors += resolved.errors
    fields = validation.read_fields(request, program.info if program else None)
    errors += [FieldError(name, message) for name, message in fields.errors]
    broken = {error.field for error in errors}
    asked = _spec(fields.values, broken, cluster=cluster.name if cluster else "", program=program)
    if asked is None:
        return _Read(errors, cluster=cluster, view=view, program=program, info=resolved.info)
    given = [str(name) for name, value in request.items() if value not in (None, "", {}, [])]
    refused = combinations.refusals(asked, program.info if program else None, given=given) or (
        combinations.refusals_in(asked, view) if view else []
    )
    if program and program.script:
        refused += script_findings.refusals(program.script, asked)
    source = checkpoint_registry.source_of(asked, by=by)
    refused = combinations.first_of_each_field([*refused, *source.errors])
    findings = (*_findings(asked, view, program), *source.warnings)
    if "tf_config" not in {name for name, _message in refused}:
        refused += [("tf_config", finding.sentence) for finding in findings if finding.blocks]
    errors += [FieldError(name, message) for name, message in refused if name not in broken]
    broken |= {name for name, _message in refused}
    batch: BatchPlan | None = None
    nearest: tuple[int, ...] = ()
    if asked.kind is Kind.RECIPE and not broken & ARITHMETIC_FIELDS:
        divided = _divided(asked, held=source.batch)
        if isinstance(divided, Indivisible):
            errors.append(FieldError("global_batch_size", divided.message))
            nearest = divided.nearest
        else:
            batch = divided
    if view is None or broken & SHAPE_FIELDS:
        spec = None
    else:
        spec = msgspec.structs.replace(asked, tf_config="") if "tf_config" in broken else asked
    return _Read(errors, spec, batch, cluster, view, program, resolved.info, nearest, findings)


def _divided(asked: JobSpec, *, held: int) -> BatchPlan | Indivisible:
    """The batch taken apart; `held` is the one that its checkpoint holds the job to, or 0."""
    divided = batching.of_spec(asked)
    return batching.held_to(held, asked) if held and isinstance(divided, Indivisible) else divided


def _spec(values: Mapping[str, object], broken: set[str], *, cluster: str, program: Program | None) -> JobSpec | None:
    """What was asked for; fields that are wrong have their default. None when the gang's shape is among them.

    A script gets the Keras that its text calls for, unless one was chosen."""
    if broken & SHAPE_FIELDS:
        return None
    sound = {name: value for name, value in values.items() if name not in broken}
    reference = program.ref if program else PLACEHOLDER_CODE
    script = program.script if program else None
    if script and sound.get("keras") is None:
        sound["keras"] = script.proposed_keras(Strategy(str(sound["strategy"])))
    return JobSpec(**{"name": "-"} | sound | {"cluster": cluster, "code": reference})  # type: ignore[arg-type]


def _findings(asked: JobSpec, view: ClusterView | None, program: Program | None) -> list[Finding]:
    linted = tf_config_lint.lint(asked.tf_config, asked, view) if asked.tf_config else []
    script = program.script if program else None
    return linted + (script_findings.findings_of(script, asked) if script else [])


def _of_nodes(spec: JobSpec, view: ClusterView, placed: Placed) -> tuple[Finding, ...]:
    return tuple(node_findings.findings(spec, planning.nodes_of(placed.replicas, view)))


def _blocking(findings: tuple[Finding, ...]) -> list[FieldError]:
    """What machines lack stands at the cluster, which another choice would mend."""
    return [FieldError("cluster", finding.sentence) for finding in findings if finding.blocks]


def _cluster(name: object) -> tuple[Cluster | None, list[FieldError]]:
    found = Cluster.objects.filter(name=name).first() if isinstance(name, str) and name.isprintable() else None
    if found:
        return found, []
    known = ", ".join(Cluster.objects.values_list("name", flat=True)[:20])
    if not known:
        return None, [FieldError("cluster", "no cluster is registered yet: an administrator registers one first")]
    ask = "choose a cluster" if name in (None, "") else "there is no cluster of that name"
    return None, [FieldError("cluster", f"{ask}; there is {known}")]
