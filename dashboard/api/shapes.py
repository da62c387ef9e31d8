"""What REST takes and gives about jobs and recipes, as types. Names are kept; fields may be added."""

from datetime import datetime
from typing import Any, Literal

from django.urls import reverse
from ninja import Schema
from pydantic import ConfigDict, Field

from orchestrator.domain.job.strategies import WORDS, readers_of
from orchestrator.queries import rows
from worker_agent.protocol.causes import CAUSES
from worker_agent.protocol.states import Cause, JobStatus, Keras, Kind, ReplicaStatus, Strategy

# JSON has no words for these numbers, so they are strings.
Number = float | Literal["NaN", "Infinity", "-Infinity"]
ParamValue = bool | int | float | str
CAUSES_IN_WORDS = " ".join(f"{row.cause.value}: {row.meaning}." for row in CAUSES)
STRATEGY_HELP = " ".join(f"{strategy.value}: {words.summary}" for strategy, words in WORDS.items())


class GitSource(Schema):
    """A repository and what to take of it."""

    url: str = Field(description="https://…, without a password in it.")
    ref: str = Field(default="", description="Branch, tag or commit; empty: the default branch.")
    path: str = Field(default="", description="Folder to take; empty: the whole repository.")


class Code(Schema):
    """A program sent with the request: `text`, or `content_base64` (for a .zip), the `sha256` of one sent before, or
    `git`."""

    filename: str = Field(default="recipe.py", description="Ends in .py or .zip.")
    text: str | None = None
    content_base64: str | None = None
    sha256: str | None = None
    git: GitSource | None = None
    entry: str | None = Field(default=None, description="The file to run, inside an archive or repository.")


def _for(field: str) -> str:
    """Which strategies read a field, as the end of its description."""
    return f" Read under {', '.join(readers_of(field))}."


class JobRequest(Schema):
    """A job to be made. The server checks every field and answers 422 with what is wrong with each.

    A field that the chosen strategy, or a script, does not read has to keep its default.
    """

    model_config = ConfigDict(json_schema_extra={"additionalProperties": False})

    name: str = Field(max_length=100)
    cluster: str = Field(description="Name of the cluster to run on.")
    kind: Kind = Field(
        default=Kind.RECIPE, description="recipe: Trainyard trains what it gives; script: run as it stands."
    )
    recipe: str | None = Field(default=None, description="Name of a recipe of the catalogue. Give this or `code`.")
    code: Code | None = None
    params: dict[str, ParamValue] = Field(default={}, description="Hyper-parameters that the program declares.")
    strategy: Strategy = Field(description=STRATEGY_HELP)
    workers: int = Field(default=1, ge=1, description="Processes that compute; 2 by default." + _for("workers"))
    ps: int = Field(default=0, ge=0, description="Parameter servers." + _for("ps"))
    devices_per_worker: int = Field(default=1, ge=1, description=_for("devices_per_worker").strip())
    chief: bool = Field(default=False, description="The first worker is called chief." + _for("chief"))
    global_batch_size: int = Field(default=64, ge=1, description="Examples per optimizer step over all replicas.")
    epochs: int = Field(default=5, ge=1)
    accumulation: int = Field(default=1, ge=1, description="Equal parts of a step." + _for("accumulation"))
    learning_rate: float | None = Field(default=None, description="Null leaves the recipe's own.")
    lr_scaling: Literal["none", "linear", "sqrt"] = Field(default="none", description="With the replicas in sync.")
    warmup_epochs: float = Field(default=0.0, ge=0, description="Epochs over which a scaled rate is reached.")
    precision: Literal["float32", "mixed_float16", "mixed_bfloat16"] = Field(
        default="float32", description="A Keras dtype policy." + _for("precision")
    )
    jit: bool = Field(default=False, description="Compile the step with XLA." + _for("jit"))
    steps_per_execution: int = Field(
        default=0, ge=0, description="0 finds a good number." + _for("steps_per_execution")
    )
    seed: int = 0
    communication: Literal["auto", "ring", "nccl"] = Field(default="auto", description=_for("communication").strip())
    cross_device: Literal["auto", "nccl", "hierarchical_copy", "reduction_to_one_device"] = Field(
        default="auto", description=_for("cross_device").strip()
    )
    min_shard_bytes: int = Field(
        default=0, ge=0, description="Larger variables are split over the servers." + _for("min_shard_bytes")
    )
    model_parallel: int | None = Field(
        default=None, ge=1, description="Devices that split a layer; all of the gang's." + _for("model_parallel")
    )
    micro_batches: int = Field(default=4, ge=1, description="Parts of a batch." + _for("micro_batches"))
    tpu: str = Field(default="", description="Name or address." + _for("tpu"))
    sharding: Literal["auto", "data", "file", "off"] = Field(default="auto", description=_for("sharding").strip())
    validation: Literal["gang", "evaluator"] = Field(
        default="gang", description="evaluator: a process of its own." + _for("validation")
    )
    checkpoint_steps: int = Field(default=0, ge=0, description="0: one at the end of every epoch.")
    checkpoints_kept: int = Field(default=3, ge=0, description="The last ones and the best; 0 writes none.")
    resume_from: int = Field(default=0, ge=0, description="Number of a stored checkpoint to begin with.")
    arguments: list[str] = Field(default=[], description="Scripts only.")
    working_dir: str = Field(default="", description="Scripts only: a folder inside the program's.")
    tf_config: str | dict[str, Any] = Field(
        default="", description="Scripts only: a TF_CONFIG of your own, without task. Empty: Trainyard writes it."
    )
    keras: Keras | None = Field(default=None, description="Null takes what suits program and strategy.")
    requirements: str = Field(default="", description="Lines such as einops==0.8.1.")
    env: dict[str, str] = Field(default={}, description="Environment variables of the training processes.")
    priority: int = Field(default=0, description="Higher goes first.")
    time_limit_s: int = Field(default=0, ge=0, description="0 means none.")
    max_restarts: int = Field(
        default=0, ge=0, le=100, description="Times it is tried again after its program failed; machines do not count."
    )


class GitOut(Schema):
    """Where a program was fetched from, and the commit that its ref meant then."""

    url: str
    ref: str
    commit: str


class CodeOut(Schema):
    """The program of a job, by content."""

    sha256: str
    entry: str
    archive: bool
    recipe: str
    git: GitOut | None = None


class Spec(Schema):
    """The job as it was asked for, defaults filled in."""

    name: str
    cluster: str
    code: CodeOut
    kind: Kind
    strategy: Strategy
    params: dict[str, ParamValue]
    workers: int
    ps: int
    devices_per_worker: int
    chief: bool
    global_batch_size: int
    epochs: int
    accumulation: int
    learning_rate: float | None
    lr_scaling: str
    warmup_epochs: float
    precision: str
    jit: bool
    steps_per_execution: int
    seed: int
    communication: str
    cross_device: str
    min_shard_bytes: int
    model_parallel: int
    micro_batches: int
    tpu: str
    sharding: str
    validation: str
    checkpoint_steps: int
    checkpoints_kept: int
    resume_from: int
    arguments: list[str]
    working_dir: str
    tf_config: str
    keras: Keras | None
    requirements: str
    env: dict[str, str]
    priority: int
    time_limit_s: int
    max_restarts: int
    version: int


class Job(Schema):
    """A job and where it stands."""

    id: int
    name: str
    cluster: str
    recipe: str = Field(description="Empty for a program of one's own.")
    owner: str
    status: JobStatus
    cause: Cause | Literal[""] = Field(description=f"Why it ended or is ending. {CAUSES_IN_WORDS}")
    reason: str = Field(description="The cause in words.")
    waiting_for: str = Field(description="Why a submitted job has not started.")
    strategy: Strategy
    attempt: int = Field(description="0 before the first launch.")
    progress: float | None = Field(description="0 to 1; null while the length is unknown.")
    step: int
    total_steps: int = Field(description="0 while unknown.")
    epoch: int
    epochs: int
    metrics: dict[str, Number] = Field(description="Of the last epoch: `loss` is its mean, not the last step's.")
    remaining_s: float | None
    priority: int
    retry_of: int | None = Field(description="The job of which this is a retry.")
    revision: int
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    spec: Spec


class JobPage(Schema):
    """Jobs, newest first. `next` is the `cursor` of the page behind; null on the last."""

    items: list[Job]
    next: int | None


class Replica(Schema):
    """One TensorFlow process of an attempt."""

    id: int
    attempt: int
    role: str
    index: int
    incarnation: int = Field(description="0; 1 for the process that took the place of that one, and so on.")
    superseded: bool = Field(description="Another process has taken its place while the others went on.")
    node: str = Field(validation_alias="node_name")
    host: str
    port: int
    devices: list[int]
    device_kind: str
    status: ReplicaStatus
    phase: str
    step: int | None = Field(description="The last that it told; null where it tells none.")
    moved_at: datetime | None = Field(description="When its latest step or phase became known here.")
    pid: int | None
    tf_config: dict[str, Any] | None = Field(description="Null where the strategy sets none.")
    facts: dict[str, Any] = Field(description="What it told of its strategy: devices, mesh, stages, loads.")
    exit_code: int | None
    signal: int | None
    cause: Cause | Literal[""]
    reason: str = Field(validation_alias="reason_in_full")
    ending: dict[str, Any] | None = Field(description="What ended it, as data; null while it lives.")
    started_at: datetime | None
    ended_at: datetime | None
    refused: int = Field(description="Records that came after another process had been launched in its place.")


class Series(Schema):
    """One replica's part of a series: columns of equal length, thinned to about `points`."""

    replica: str
    attempt: int
    steps: list[int]
    times: list[float]
    values: list[Number]
    incarnation: int = Field(description="Grows with each process that takes the place of one before it.")


class Log(Schema):
    """A piece of a log; `next` is the `offset` of the piece behind it."""

    text: str
    next: int


class Event(Schema):
    """One line of a job's history."""

    id: int
    at: datetime
    kind: str
    text: str
    attempt: int | None
    actor: str | None = Field(validation_alias="actor_name")
    node: str | None = Field(validation_alias="node_name")


class Restart(Schema):
    """A launch that failed and was followed by another one, and what it cost; or processes of a launch that began anew
    while the others went on."""

    attempt: int = Field(description="The launch that failed, or within which processes began anew.")
    replicas: list[str] = Field(description="Those that began anew while the others went on; empty: the whole gang.")
    cause: Cause
    reason: str
    counted: bool = Field(description="Whether it counts against `max_restarts`.")
    node: str = Field(description="Of who it failed of, or was asked from outside to leave; else empty.")
    failed_at: datetime = Field(
        description="When the first of its failed processes was known to have ended, or was given up with its node."
    )
    step_reached: int
    step_resumed: int | None = Field(description="Of the next launch; null while it waits, and where no step was lost.")
    steps_lost: int | None
    running_at: datetime | None = Field(description="When every process was at work again.")
    lost_since: datetime | None = Field(
        description="From when time was lost: the last step that was heard of, or the begin of the work if none came "
        "after that. Null where the others went on, and after a pause that a person ended."
    )
    seconds_lost: float | None = Field(
        description="To `running_at`; 0 where the others went on. Null until then and after such a pause."
    )


class Artifact(Schema):
    """A file that a job left."""

    id: int
    attempt: int
    name: str
    kind: str
    size_bytes: int
    sha256: str
    metrics: dict[str, Any]
    created_at: datetime
    url: str = Field(description="Where it can be downloaded.")

    @staticmethod
    def resolve_url(row: rows.Artifact) -> str:
        """Its address here."""
        return reverse("api-1:download_artifact", args=[row.job_id, row.pk])


class FieldError(Schema):
    """What is wrong with one field of a request."""

    field: str
    message: str


class Batch(Schema):
    """One optimizer step taken apart."""

    global_batch_size: int
    workers: int
    devices_per_worker: int
    replicas_in_sync: int
    per_worker: int
    per_replica: int
    parts: int = Field(description="In how many equal parts a replica computes its share.")
    per_part: int
    base_learning_rate: float | None
    learning_rate: float | None
    warmup_epochs: float
    sentences: list[str]


class Place(Schema):
    """Where one process would run."""

    role: str
    index: int
    node: str = Field(validation_alias="node_name")
    host: str
    port: int
    devices: list[int]
    device_kind: str


class Finding(Schema):
    """What was found before a job starts, beyond errors at fields."""

    what: str
    why: str
    remedy: str
    blocks: bool = Field(description="False: a warning.")


class Preview(Schema):
    """What would happen if the request were sent now."""

    errors: list[FieldError]
    batch: Batch | None
    placement: list[Place]
    waiting_for: str = Field(description="Empty when it would start at once.")
    tf_configs: dict[str, dict[str, Any]] = Field(description="By process, such as worker:0.")
    findings: list[Finding]


class Param(Schema):
    """A hyper-parameter that a recipe declares."""

    name: str
    type: str
    default: ParamValue
    min: float | None
    max: float | None
    choices: list[ParamValue]
    help: str


class Recipe(Schema):
    """A program of the catalogue."""

    name: str
    title: str
    description: str
    params: list[Param]
