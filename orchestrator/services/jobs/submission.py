"""From a request to a JobSpec, or to sentences at its fields, in one straight line. Nothing raises on bad input.

A form or REST gives the fields of `POST /jobs` as they were typed. `check`
1. resolves the cluster and, unless the caller has, the program;
2. reads each field by its declaration (`domain/job/validation.py`);
3. looks for what cannot go together (`combinations.py`, script, checkpoint, TF_CONFIG), and divides the batch;
4. places the gang as if it were launched now, and looks at its nodes.
`services/jobs/jobs.py` writes the rows of what has no errors; the form shows everything, also of a request that is not
complete yet. Nothing is written here.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import msgspec

from orchestrator.domain.job import batching, combinations, script_findings, validation
from orchestrator.domain.job.batching import BatchPlan, Indivisible
from orchestrator.domain.placement import node_findings, planning, tf_config_lint
from orchestrator.domain.placement.planning import ClusterView, Never, NodeView, NotNow, PlannedReplica
from orchestrator.models import Cluster, User
from orchestrator.services.checkpoints import checkpoint_registry
from orchestrator.services.errors import FieldError
from orchestrator.services.nodes.cluster_snapshot import cluster_view
from orchestrator.services.programs import programs
from orchestrator.services.programs.programs import Program, Rejected
from worker_agent.protocol.findings import Finding
from worker_agent.protocol.job.job_spec import CodeRef, JobSpec
from worker_agent.protocol.job.recipe_text import RecipeInfo
from worker_agent.protocol.job.script.script_text import ScriptInfo
from worker_agent.protocol.job.strategies import STRATEGIES
from worker_agent.protocol.states import Kind, Strategy

PLACEHOLDER_CODE = CodeRef(sha256="", entry="")
# Without these the gang has no shape, and nothing can be said of its batch or its place.
SHAPE_FIELDS = frozenset({"strategy", "kind", "workers", "ps", "devices_per_worker", "chief", "validation"})


@dataclass(frozen=True)
class Checked:
    """What a request comes to. Parts that the errors make unknowable are empty.

    `asked` is what was asked for as far as the gang's shape is sound. `nearest` are the global batch sizes around the
    given one that divide, when it does not. `waiting_for` "" with a placement means that the job would start at once.
    `findings` are what was found beyond errors at fields.
    """

    errors: list[FieldError]
    program: Program | Rejected | None = None
    cluster: Cluster | None = None
    view: ClusterView | None = None
    asked: JobSpec | None = None
    batch: BatchPlan | None = None
    nearest: tuple[int, ...] = ()
    placement: tuple[PlannedReplica, ...] = ()
    waiting_for: str = ""
    findings: tuple[Finding, ...] = ()

    @property
    def spec(self) -> JobSpec | None:
        """The job, when nothing is wrong with it."""
        return None if self.errors else self.asked

    @property
    def nodes(self) -> tuple[NodeView, ...]:
        """The nodes of its cluster."""
        return self.view.nodes if self.view else ()

    @property
    def info(self) -> RecipeInfo | None:
        """What the program declares, as far as that could be read."""
        return self.program.info if self.program else None

    @property
    def script(self) -> ScriptInfo | None:
        """What the text of a script says of itself."""
        return self.program.script if isinstance(self.program, Program) else None

    @property
    def tf_configs(self) -> dict[str, dict[str, object]]:
        """The TF_CONFIG of each process that gets one, by `worker:0`."""
        return {each.label: each.tf_config for each in self.placement if each.tf_config is not None}


def check(request: Mapping[str, object], *, by: User, program: Program | Rejected | None = None) -> Checked:
    """Everything that the request comes to; `program` is the one that it names, where that is known already."""
    program = program or programs.resolve(request, by=by)
    checked = _read(request, program, by=by)
    if checked.asked is None or checked.view is None:
        return checked
    outcome = planning.place(checked.asked, checked.view)
    if isinstance(outcome, Never):
        return replace(checked, errors=[*checked.errors, FieldError(outcome.field, outcome.message)])
    if isinstance(outcome, NotNow):
        return replace(checked, waiting_for=outcome.message)
    of_nodes = tuple(node_findings.findings(checked.asked, planning.nodes_of(outcome.replicas, checked.view)))
    # What machines lack stands at the cluster, which another choice would mend.
    lacking = [FieldError("cluster", finding.sentence) for finding in of_nodes if finding.blocks]
    findings = (*checked.findings, *of_nodes)
    return replace(checked, errors=checked.errors + lacking, placement=outcome.replicas, findings=findings)


def _read(request: Mapping[str, object], resolved: Program | Rejected, *, by: User) -> Checked:
    cluster, errors = _cluster(request.get("cluster"))
    view = cluster_view(cluster) if cluster else None
    program = resolved if isinstance(resolved, Program) else None
    if isinstance(resolved, Rejected):
        errors += resolved.errors
    fields = validation.read_fields(request, program.info if program else None)
    errors += [FieldError(name, message) for name, message in fields.errors]
    broken = {error.field for error in errors}
    asked = _spec(fields.values, broken, cluster=cluster.name if cluster else "", program=program)
    if asked is None:
        return Checked(errors, resolved, cluster, view)
    given = [str(name) for name, value in request.items() if value not in (None, "", {}, [])]
    refused = combinations.refusals(asked, program.info if program else None, given=given) or (
        combinations.refusals_in(asked, view) if view else []
    )
    if program and program.script:
        refused += script_findings.refusals(program.script, asked)
    source = checkpoint_registry.resume_point(asked, by=by)
    refused = combinations.first_of_each_field([*refused, *source.errors])
    findings = (*fields.findings, *_findings(asked, view, program, given), *source.warnings)
    if "tf_config" not in {name for name, _message in refused}:
        refused += [("tf_config", finding.sentence) for finding in findings if finding.blocks]
    errors += [FieldError(name, message) for name, message in refused if name not in broken]
    broken |= {name for name, _message in refused}
    batch: BatchPlan | Indivisible | None = None
    if asked.kind is Kind.RECIPE and not broken & (SHAPE_FIELDS | batching.FIELDS):
        batch = batching.of_spec(asked, held=source.batch)
    if isinstance(batch, Indivisible):
        errors.append(FieldError("global_batch_size", batch.message))
    if broken & SHAPE_FIELDS:
        asked = None
    elif "tf_config" in broken:
        asked = msgspec.structs.replace(asked, tf_config="")
    known = Checked(errors, resolved, cluster, view, asked, findings=findings)
    if isinstance(batch, Indivisible):
        return replace(known, nearest=batch.nearest)
    return replace(known, batch=batch)


def _spec(values: Mapping[str, object], broken: set[str], *, cluster: str, program: Program | None) -> JobSpec | None:
    """What was asked for; fields that are wrong have their default. None when the gang's shape is among them.

    A script gets the Keras and the chief that its text calls for, unless one was chosen."""
    if broken & SHAPE_FIELDS:
        return None
    sound = {name: value for name, value in values.items() if name not in broken}
    reference = program.ref if program else PLACEHOLDER_CODE
    script = program.script if program else None
    strategy = Strategy(str(sound["strategy"]))
    if script and sound.get("keras") is None:
        sound["keras"] = script.proposed_keras(strategy)
    if script and sound.get("chief") is None and STRATEGIES[strategy].coordinated:
        left_out = script.serves and tf_config_lint.leaves_chief_out(str(sound.get("tf_config", "")))
        sound["chief"] = False if script.worker_leads or left_out else None
    return JobSpec(**{"name": "-"} | sound | {"cluster": cluster, "code": reference})  # type: ignore[arg-type]  # checked


def _findings(
    asked: JobSpec, view: ClusterView | None, program: Program | None, given: Collection[str]
) -> list[Finding]:
    linted = tf_config_lint.lint(asked.tf_config, asked, view) if asked.tf_config else []
    script = program.script if program else None
    return linted + (script_findings.findings_of(script, asked, given=given) if script else [])


def _cluster(name: object) -> tuple[Cluster | None, list[FieldError]]:
    found = Cluster.objects.filter(name=name).first() if isinstance(name, str) and name.isprintable() else None
    if found:
        return found, []
    known = ", ".join(Cluster.objects.values_list("name", flat=True)[:20])
    if not known:
        return None, [FieldError("cluster", "no cluster is registered yet: an administrator has to register one")]
    ask = "choose a cluster" if name in (None, "") else "there is no cluster of that name"
    return None, [FieldError("cluster", f"{ask}; there is {known}")]
