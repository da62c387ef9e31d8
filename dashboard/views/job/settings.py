"""A job's spec as a person reads it: the settings of the job page, in the order of the form."""

import shlex

from dashboard.templatetags.trainyard import group, strategy_name
from dashboard.views.new_job.choices import OPTIONS
from orchestrator.domain.job.strategies import PARTICULAR, fields_of
from orchestrator.queries.rows import Job
from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.protocol.states import Kind

LABELS = {
    "ps": "Parameter servers",
    "chief": "Chief of its own",
    "communication": "Sums over the network",
    "cross_device": "Sums between devices",
    "min_shard_bytes": "Splits variables above",
    "model_parallel": "Devices that split a layer",
    "micro_batches": "Micro-batches",
    "tpu": "TPU",
    "validation": "Validation",
    "sharding": "Sharing out the data",
    "accumulation": "Passes a step",
    "precision": "Precision",
    "jit": "Compiled with XLA",
    "steps_per_execution": "Steps per call",
}
IN_WORKERS = ("workers", "devices_per_worker")
# Where the default says nothing that a person would look for.
QUIET = {"chief": False, "min_shard_bytes": 0, "accumulation": 1, "jit": False, "steps_per_execution": 0} | {
    name: OPTIONS[name][0][0] for name in ("communication", "cross_device", "sharding", "validation", "precision")
}


def settings_of(job: Job) -> list[tuple[str, str]]:
    """(name, value) of everything that was asked for and says something."""
    spec = job.typed_spec
    rows = [
        ("Program", _program(job, spec)),
        *([] if spec.kind is Kind.RECIPE else _of_a_script(spec)),
        ("Strategy", strategy_name(spec.strategy)),
        ("Workers", f"{spec.workers} with {spec.devices_per_worker} device{'s' * (spec.devices_per_worker != 1)} each"),
        *_particular(spec),
        *(_of_a_recipe(spec) if spec.kind is Kind.RECIPE else []),
        ("Priority", str(spec.priority) if spec.priority else ""),
        ("Time limit", f"{spec.time_limit_s} s" if spec.time_limit_s else ""),
        ("Restarts after failures", str(spec.max_restarts) if spec.max_restarts else ""),
        *((name, str(value)) for name, value in spec.params.items()),
        *((name, value) for name, value in spec.env.items()),
    ]
    return [(name, value) for name, value in rows if value]


def _program(job: Job, spec: JobSpec) -> str:
    if spec.code.git:
        return (
            f"{spec.code.entry} of {spec.code.git.url} at {spec.code.git.commit[:12]} ({spec.code.git.ref or 'HEAD'})"
        )
    if job.recipe:
        return f"{job.recipe} (recipe)"
    return job.code.filename if spec.kind is Kind.RECIPE else f"{job.code.filename} (script)"


def _of_a_script(spec: JobSpec) -> list[tuple[str, str]]:
    return [
        ("Arguments", shlex.join(spec.arguments)),
        ("Working directory", spec.working_dir),
        ("Keras", dict(OPTIONS["keras"]).get(spec.keras or "", "") if spec.keras else ""),
        ("Packages", ", ".join(spec.requirements.splitlines())),
        ("TF_CONFIG", "written by hand" if spec.tf_config else ""),
    ]


def _particular(spec: JobSpec) -> list[tuple[str, str]]:
    """What the strategy reads, but for defaults that say nothing."""
    fields = fields_of(spec.strategy, spec.kind)
    asked = [name for name in PARTICULAR if name in fields and name not in IN_WORKERS]
    return [
        (LABELS[name], _said(name, getattr(spec, name))) for name in asked if getattr(spec, name) != QUIET.get(name)
    ]


def _said(name: str, value: object) -> str:
    if name in OPTIONS:
        return dict(OPTIONS[name]).get(str(value), str(value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(group(value)) if isinstance(value, int) else str(value)


def _of_a_recipe(spec: JobSpec) -> list[tuple[str, str]]:
    learning = "as in the recipe" if spec.learning_rate is None else f"{spec.learning_rate:g}"
    if spec.lr_scaling != "none":
        how = "with" if spec.lr_scaling == "linear" else "with the square root of"
        learning += f", scaled {how} the replicas, warm-up {spec.warmup_epochs:g} epochs"
    every = f"every {group(spec.checkpoint_steps)} steps" if spec.checkpoint_steps else "every epoch"
    return [
        ("Global batch", group(spec.global_batch_size)),
        ("Epochs", group(spec.epochs)),
        ("Learning rate", learning),
        ("Checkpoints", f"{every}, {spec.checkpoints_kept} kept" if spec.checkpoints_kept else "none"),
        ("Begins with", f"checkpoint {spec.resume_from}" if spec.resume_from else ""),
        ("Seed", str(spec.seed)),
    ]
