"""The frozen, versioned description of a job: what a person asked for, and nothing that was decided for them."""

from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta

from worker_agent.protocol.job.choices import Communication, CrossDevice, LrScaling, Precision, Sharding, Validator
from worker_agent.protocol.job.field import Field, fields_in
from worker_agent.protocol.states import Keras, Kind, Strategy

REQUIREMENTS_MAX = 200
REQUIREMENT_CHARS_MAX = 300
FILES_KEPT = (
    "*.keras *.h5 *.tflite *.onnx saved_model.pb keras_metadata.pb fingerprint.pb assets/* checkpoint *.index "
    "*.data-*-of-* *tfevents* *.xplane.pb *.png *.json *.csv *.txt"
)
"""What a script's files are called that are kept: models, SavedModels, TensorFlow's checkpoints, TensorBoard's folders,
pictures and tables."""

ParamValue = bool | int | float | str


class GitRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where code of a git address came from: the address, the branch or tag asked for, the commit it meant then, and
    the folder of it that was taken ("": all)."""

    url: str
    ref: str
    commit: str
    path: str = ""


class CodeRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The user's program by content: `sha256` of the stored bytes (one `.py`, or a `.zip`).

    `entry` is the file to run inside the archive, or the file's own name. `recipe` names the catalogue entry it came
    from, empty for uploaded or edited code. `git` is set for code fetched from a git address.
    """

    sha256: str
    entry: str
    archive: bool = False
    recipe: str = ""
    git: GitRef | None = None


_devices = partial(Field, group="devices")
_roles = partial(Field, group="devices", folded="Communication and roles")
_learning = partial(Field, group="learning", width=2, only=Kind.RECIPE, always=True)
_maths = partial(Field, group="learning", folded="Accumulation, precision, compilation", only=Kind.RECIPE)
_run = partial(Field, group="run", width=2, rebuilds=False)
_checkpoints = partial(Field, group="run", folded="Checkpoints", width=2, only=Kind.RECIPE, rebuilds=False)
_script = partial(Field, group="program", folded="File to run, folder, packages", only=Kind.SCRIPT)
_files = partial(_script, folded="Files to keep", rebuilds=False)


class JobSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A job as its owner described it: the one declaration of each field, in the order of the form.

    `field.py` says what a declaration holds. Which strategies read a field, and what it is under them unless it is
    given, stands in `strategies.py`. Names, types and `version` are those of the wire.
    """

    name: Annotated[
        str,
        Meta(max_length=100),
        Field("Name", "name", width=4, rebuilds=False),
        "You find the job by this name. Names need not be unique.",
    ]
    kind: Annotated[Kind, Field("Kind of program", "kind", control="choices")] = Kind.RECIPE
    code: CodeRef
    params: dict[str, ParamValue] = {}
    arguments: Annotated[
        list[str],
        Meta(max_length=200),
        _script(
            "Arguments",
            folded="",
            control="text",
            width=6,
            example="--batch-size 64 --data /data/set",
            instead="declare it in PARAMS and set it there",
        ),
        "As on a command line. Put quotation marks around an argument with spaces.",
    ] = []
    keras: (
        Annotated[Keras, Field("Keras", "program", folded="Keras"), "Which Keras the program gets as tf.keras."] | None
    ) = None
    working_dir: Annotated[
        str,
        Meta(max_length=500),
        _script("Working directory", example="the top folder", instead="a recipe is loaded from its own folder"),
        "The folder of the program in which it runs.",
    ] = ""
    requirements: Annotated[
        str,
        Meta(max_length=REQUIREMENTS_MAX * REQUIREMENT_CHARS_MAX),
        _script(
            "Packages", control="lines", example="einops==0.8.1", instead="import only what the nodes have installed"
        ),
        "One per line. Each node installs them for the job, from its own package index.",
    ] = ""
    files: Annotated[
        str,
        Meta(max_length=2000),
        _files("Files kept", control="text", width=6, instead="a recipe's model and metrics are always kept"),
        "Names of files that the program writes into its folder, separated by spaces: *.png, or plots/* for a folder. "
        "What trainyard.save(path) is given is kept, too; no other file is.",
    ] = FILES_KEPT
    files_limit_mb: Annotated[
        int,
        Meta(ge=0, le=1_000_000),
        _files("Limit of all files", unit="MB", instead="a recipe's model and metrics are always kept"),
        "Of the job, over all its processes and launches. What goes beyond it stays on the node and is listed.",
    ] = 2000
    printed: Annotated[
        str,
        Meta(max_length=1_000),
        _script(
            "Numbers in printed lines",
            control="text",
            width=6,
            folded="",
            rebuilds=False,
            example="loss, accuracy",
            instead="a recipe's metrics are drawn by themselves",
        ),
        "Names that the program prints before a number, as in loss: 0.25 or acc=0.9. Each becomes a curve.",
    ] = ""
    strategy: Annotated[Strategy, Field("Strategy", "strategy", control="choices")]
    cluster: Annotated[str, _devices("Cluster", control="select", rebuilds=True), "Its nodes run the job."]
    tpu: Annotated[
        str,
        Meta(max_length=200),
        _devices("TPU", example="my-tpu or grpc://10.0.0.9:8470"),
        "Its name, its address, or local for the node's own TPU.",
    ] = ""
    workers: Annotated[
        int, Meta(ge=1, le=1024), _devices("Workers", always=True), "Processes that train. Each runs on one node."
    ] = 1
    devices_per_worker: Annotated[
        int, Meta(ge=1, le=64), _devices("Devices per worker", always=True), "GPUs, or CPU slots if a node has none."
    ] = 1
    ps: Annotated[
        int,
        Meta(ge=0, le=256),
        _devices("Parameter servers", always=True),
        "Processes that hold the variables. They use no device.",
    ] = 0
    model_parallel: Annotated[
        int,
        Meta(ge=1, le=65_536),
        _devices("Devices per layer", only=Kind.RECIPE, always=True),
        "Each layer is split over this many devices. Further devices train on other examples.",
    ] = 1
    micro_batches: Annotated[
        int,
        Meta(ge=1, le=4096),
        _devices("Micro-batches", only=Kind.RECIPE, always=True),
        "More micro-batches keep the stages busier, but each is smaller.",
    ] = 4
    cross_device: Annotated[
        CrossDevice, _devices("Communication between devices", only=Kind.RECIPE), "How the devices sum their gradients."
    ] = CrossDevice.AUTO
    communication: Annotated[
        Communication, _roles("Communication between workers", only=Kind.RECIPE), "How the workers sum their gradients."
    ] = Communication.AUTO
    min_shard_bytes: Annotated[
        int,
        Meta(ge=0, le=1 << 40),
        _roles("Smallest part of a split variable", only=Kind.RECIPE, unit="bytes"),
        "A variable is split over the parameter servers into parts of at least this size. 0 splits none.",
    ] = 0
    validation: Annotated[
        Validator,
        _roles("Validation"),
        "An evaluator is a separate process on the leader's node. It computes on the CPU.",
    ] = Validator.GANG
    chief: (
        Annotated[
            bool,
            _roles("Chief", control="select"),
            "Under ParameterServer it hands out the work; a TensorFlow 1 script has none, its worker 0 leads. "
            "Otherwise the first worker gets this name. Automatic: as the strategy and the script need it.",
        ]
        | None
    ) = None
    tf_config: Annotated[
        str,
        Meta(max_length=100_000),
        _devices(
            "TF_CONFIG",
            folded="Your own TF_CONFIG",
            control="lines",
            only=Kind.SCRIPT,
            example='{"cluster": {"worker": ["10.0.0.1:20000", "10.0.0.2:20000"]}}',
            instead="Trainyard writes a recipe's TF_CONFIG",
        ),
        "Only for a program that needs certain addresses. Leave the task out: each process gets its own. If empty, "
        "Trainyard writes it.",
    ] = ""
    global_batch_size: Annotated[
        int, Meta(ge=1, le=1 << 24), _learning("Global batch size"), "Examples per step, over all replicas."
    ] = 64
    epochs: Annotated[
        int, Meta(ge=1, le=100_000), _learning("Epochs", rebuilds=False), "Passes over the training data."
    ] = 5
    max_steps: Annotated[
        int,
        Meta(ge=0, le=10**12),
        _learning("Steps at most", always=False, rebuilds=False),
        "The training ends after so many, also amid an epoch. 0 sets no limit.",
    ] = 0
    learning_rate: (
        Annotated[
            float,
            Meta(ge=1e-12, le=1000.0),
            _learning("Learning rate", example="the recipe's own"),
            "If empty, the program's own: a recipe's lr, for instance.",
        ]
        | None
    ) = None
    lr_scaling: Annotated[LrScaling, _learning("Learning rate scaling", control="choices", width=6, always=False)] = (
        LrScaling.NONE
    )
    warmup_epochs: Annotated[
        float,
        Meta(ge=0, le=100_000),
        _learning("Warm-up", unit="epochs", width=3, always=False),
        "The rate rises from the given to the scaled one. A large rate at the start can make training diverge.",
    ] = 0.0
    accumulation: Annotated[
        int,
        Meta(ge=1, le=4096),
        _maths("Gradient accumulation steps"),
        "Each replica computes its batch in this many parts. For a batch that does not fit in memory.",
    ] = 1
    precision: Annotated[Precision, _maths("Precision"), "Mixed: computes in 16 bits, keeps variables in 32."] = (
        Precision.FLOAT32
    )
    steps_per_execution: Annotated[
        int,
        Meta(ge=0, le=1_000_000),
        _maths("Steps per call"),
        "Steps that TensorFlow takes per Python call. 0 finds a good number.",
    ] = 0
    sharding: Annotated[Sharding, _maths("Data sharding"), "Which worker reads which examples."] = Sharding.AUTO
    jit: Annotated[bool, _maths("Compile the step with XLA"), "Often faster on GPUs. The first step takes longer."] = (
        False
    )
    priority: Annotated[
        int,
        Meta(ge=-100, le=100),
        _run("Priority"),
        "Waiting jobs with a higher priority start first; −100 to 100.",  # noqa: RUF001
    ] = 0
    time_limit_s: Annotated[
        int,
        Meta(ge=0, le=30 * 86_400),
        _run("Time limit", unit="s"),
        "The job ends when it has run this long. Waiting and pauses do not count. 0 sets no limit.",
    ] = 0
    seed: Annotated[
        int,
        Meta(ge=0, le=2**31 - 1),
        _run("Seed", only=Kind.RECIPE, always=True),
        "The same seed gives the same shuffling.",
    ] = 0
    env: Annotated[
        dict[str, str],
        Meta(max_length=100),
        _run("Environment variables", control="lines", width=6, example="TF_CPP_MIN_LOG_LEVEL=1", rebuilds=True),
        "For every process of the job. In the form, one NAME=value per line. All users see them: no secrets.",
    ] = {}
    checkpoints_kept: Annotated[
        int,
        Meta(ge=0, le=1000),
        _checkpoints("Checkpoints kept", always=True),
        "The last ones and the best one. 0 writes none.",
    ] = 3
    checkpoint_steps: Annotated[
        int,
        Meta(ge=0, le=10**9),
        _checkpoints("Checkpoint every", unit="steps"),
        "0 writes one at the end of every epoch.",
    ] = 0
    resume_from: Annotated[
        int, Meta(ge=0, le=2**53), _checkpoints("Start from checkpoint"), "Its number. 0 starts from the beginning."
    ] = 0
    max_restarts: Annotated[
        int,
        Meta(ge=0, le=100),
        _run("Restarts after failures", folded="After a failure", unit="times", width=3),
        "Launches after the program failed, each after a longer wait; 0 to 100. Lost machines and killed processes do "
        "not count.",
    ] = 0
    version: int = 2


FIELDS = {row.name: row for row in fields_in(JobSpec)}
"""Every field that people may ask for, but the program and its hyper-parameters."""


def keeps_checkpoints(spec: JobSpec) -> bool:
    """Whether Trainyard's loop writes checkpoints for the job; a script's are its own affair."""
    return spec.kind is Kind.RECIPE and spec.checkpoints_kept > 0
