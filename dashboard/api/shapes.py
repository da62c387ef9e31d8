"""What REST takes and gives about jobs and recipes, as types. Names are kept; fields may be added."""

from datetime import datetime
from typing import Any, Literal

from django.urls import reverse
from ninja import Schema
from pydantic import ConfigDict, Field, create_model

from orchestrator.queries import rows
from worker_agent.protocol.causes import CAUSES
from worker_agent.protocol.files import NotKept
from worker_agent.protocol.job.field import Field as Row
from worker_agent.protocol.job.job_spec import FIELDS
from worker_agent.protocol.job.strategies import PARTICULAR, STRATEGIES, default_in_words, readers_of
from worker_agent.protocol.states import Cause, JobStatus, ReplicaStatus, Strategy

# JSON has no words for these numbers, so they are strings.
Number = float | Literal["NaN", "Infinity", "-Infinity"]
ParamValue = bool | int | float | str
NOT_KEPT_IN_WORDS = " ".join(f"{why.value}: {why.label}." for why in NotKept)
CAUSES_IN_WORDS = " ".join(f"{row.cause.value}: {row.title}." for row in CAUSES)


class GitSource(Schema):
    """A repository and what to take of it."""

    url: str = Field(description="https://…, without a password in it.")
    ref: str = Field(default="", description="Branch, tag or commit; empty: the default branch.")
    path: str = Field(default="", description="Folder to take; empty: the whole repository.")


class Code(Schema):
    """A program sent with the request: `text`, or `content_base64` (for a .zip), the `sha256` of one sent before, or
    `git`."""

    filename: str = Field(default="recipe.py", description="Ends in .py or .zip.")
    text: str | None = Field(default=None, description="The text of one .py file.")
    content_base64: str | None = Field(default=None, description="The file's bytes, in base64.")
    sha256: str | None = Field(default=None, description="Of a program that the server has, in hexadecimal digits.")
    git: GitSource | None = None
    entry: str | None = Field(default=None, description="The file to run, inside an archive or repository.")


def _asked(row: Row) -> tuple[Any, Any]:
    """A field of a request: its type, and what the document says of it."""
    varies = any(row.name in each.defaults for each in STRATEGIES.values())
    said = (
        row.help,
        " ".join(f"{option}: {option.help}" for option in row.options if option.help),
        f"Unit: {row.unit}." if row.unit else "",
        f"By default {default_in_words(row)}." if varies else "",
        f"Read under {', '.join(readers_of(row.name))}." if row.name in PARTICULAR else "",
        f"Of a {row.only} only." if row.only else "",
    )
    return (
        row.type | None if row.default is None or varies else row.type,
        Field(
            ... if row.required else None if varies else row.default,
            ge=row.low,
            le=row.high,
            max_length=row.longest,
            title=row.label,
            description=" ".join(filter(None, said)),
        ),
    )


class _JobRequest(Schema):
    """A job to be made. The server checks every field and answers 422 with what is wrong with each.

    A field that the chosen strategy, or a script, does not read has to keep its default.
    """

    model_config = ConfigDict(json_schema_extra={"additionalProperties": False})

    recipe: str | None = Field(default=None, description="Name of a recipe of the catalogue. Give this or `code`.")
    code: Code | None = None
    params: dict[str, ParamValue] = Field(default={}, description="Hyper-parameters that the program declares.")


_REQUEST: dict[str, Any] = {name: _asked(row) for name, row in FIELDS.items()} | {
    "strategy": (Strategy, Field(description=" ".join(f"{name}: {row.summary}" for name, row in STRATEGIES.items()))),
    "tf_config": (str | dict[str, Any], _asked(FIELDS["tf_config"])[1]),
}
JobRequest = create_model("JobRequest", __base__=_JobRequest, __doc__=_JobRequest.__doc__, **_REQUEST)


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


class _Spec(Schema):
    """The job as it was asked for, defaults filled in."""

    code: CodeOut
    params: dict[str, ParamValue]
    version: int


_SPEC: dict[str, Any] = {
    name: (row.type | None if row.default is None else row.type, ...) for name, row in FIELDS.items()
}
Spec = create_model("Spec", __base__=_Spec, __doc__=_Spec.__doc__, **_SPEC)


class Job(Schema):
    """A job and where it stands."""

    id: int
    name: str
    cluster: str
    recipe: str = Field(description="Empty if the program is not from the catalogue.")
    owner: str
    status: JobStatus
    cause: Cause | Literal[""] = Field(description=f"Why it ended or is ending. {CAUSES_IN_WORDS}")
    reason: str = Field(description="The cause in words.")
    waiting_for: str = Field(description="Why a submitted job has not started.")
    strategy: Strategy
    attempt: int = Field(description="0 before the first attempt.")
    progress: float | None = Field(description="0 to 1; null while the length is unknown.")
    step: int
    total_steps: int = Field(description="0 while unknown.")
    epoch: int
    epochs: int
    metrics: dict[str, Number] = Field(description="Of the last epoch: `loss` is its mean, not the last step's.")
    loss_name: str = Field(description="The metric that is taken as its loss, such as `Train/loss`; empty if none is.")
    tags: list[str]
    remaining_s: float | None
    priority: int
    retry_of: int | None = Field(description="The job of which this is a retry.")
    revision: int
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    spec: Spec  # type: ignore[valid-type]  # made from the fields' own table


class JobPage(Schema):
    """Jobs in the order asked for. `next` is the `cursor` of the page behind; null on the last."""

    items: list[Job]
    next: int | None


class LeftFile(Schema):
    """A file that is not kept."""

    name: str
    size_bytes: int
    why: NotKept = Field(description=NOT_KEPT_IN_WORDS)


class LeftFiles(Schema):
    """Files of a process that are not kept; they stay on its node while that keeps its folder."""

    left: list[LeftFile] = []
    more: int = Field(0, description="How many there are besides.")


class Replica(Schema):
    """One TensorFlow process of an attempt."""

    id: int
    attempt: int
    role: str
    index: int
    incarnation: int = Field(description="0; 1 for the process that replaced it, and so on.")
    superseded: bool = Field(description="Another process has replaced it while the others continued.")
    node: str = Field(validation_alias="node_name")
    host: str
    port: int
    devices: list[int]
    device_kind: str
    status: ReplicaStatus
    phase: str
    step: int | None = Field(description="The last that it reported; null if it reports none.")
    moved_at: datetime | None = Field(description="When its latest step or phase was received.")
    pid: int | None
    tf_config: dict[str, Any] | None = Field(description="Null where the strategy sets none.")
    facts: dict[str, Any] = Field(description="What it reported about its strategy: devices, mesh, stages, loads.")
    exit_code: int | None
    signal: int | None
    cause: Cause | Literal[""]
    reason: str = Field(validation_alias="reason_in_full")
    ending: dict[str, Any] | None = Field(description="What ended it, as data; null while it lives.")
    started_at: datetime | None
    ended_at: datetime | None
    refused: int = Field(description="Records that came after another process had replaced it.")
    files_left: LeftFiles = Field(description="Files that a script wrote and that are not kept.")


class Series(Schema):
    """One replica's part of a series: columns of equal length, thinned to about `points`."""

    replica: str
    attempt: int
    steps: list[int]
    times: list[float]
    values: list[Number]
    incarnation: int = Field(description="Grows by 1 with each process that replaces another.")


class Printed(Schema):
    """A name that stands before numbers in printed lines."""

    name: str
    lines: int = Field(description="In how many lines, of the first 256 kB of its leader's log.")
    first: Number
    last: Number


class DrawPrinted(Schema):
    """What to look for in printed lines."""

    names: str = Field(description="Names, comma-separated, as in the field `printed` of a job.")


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
    """An attempt that failed and was followed by another one, and what it cost; or processes of one that started
    again while the others continued."""

    attempt: int = Field(description="The attempt that failed, or in which processes started again.")
    replicas: list[str] = Field(description="Those that started again while others continued; empty: the whole gang.")
    cause: Cause
    reason: str
    counted: bool = Field(description="Whether it counts against `max_restarts`.")
    node: str = Field(description="The node of the process that failed or got a SIGTERM from outside, or empty.")
    failed_at: datetime = Field(
        description="When the first of its failed processes was known to have ended, or was given up with its node."
    )
    step_reached: int
    step_resumed: int | None = Field(description="Of the next attempt; null while it waits, and if no step was lost.")
    steps_lost: int | None
    running_at: datetime | None = Field(description="When all processes were running again.")
    lost_since: datetime | None = Field(
        description="From when time was lost: the last reported step, or the start of the work if none came "
        "after that. Null if the others continued, and after a pause that a person ended."
    )
    seconds_lost: float | None = Field(
        description="To `running_at`; 0 if the others continued. Null until then and after such a pause."
    )


class Artifact(Schema):
    """A file that a job left."""

    id: int
    attempt: int
    replica: str | None = Field(description="The process that left it; null from an older version.")
    name: str = Field(description="Its path below the program's folder.")
    kind: str
    size_bytes: int
    sha256: str
    metrics: dict[str, Any]
    created_at: datetime
    url: str = Field(description="Where it can be downloaded.")

    @staticmethod
    def resolve_replica(row: rows.Artifact) -> str | None:
        """By its name, such as worker:0."""
        return str(row.replica) if row.replica else None

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
    parts: int = Field(description="The number of equal parts in which a replica computes its share.")
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
