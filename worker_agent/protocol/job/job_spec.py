"""The frozen, versioned description of a job: what a person asked for, and nothing that was decided for them."""

import msgspec

from worker_agent.protocol.states import Keras, Kind, Strategy

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


class JobSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A job as its owner described it. Sizes are counts; `learning_rate` None leaves the recipe's own.

    Shape. `workers` processes compute, with `devices_per_worker` devices each; `ps` serve variables; `chief` gives
    MultiWorkerMirrored a chief of its own, which computes like a worker and is counted among `workers`.

    Arithmetic. `global_batch_size` examples make one optimizer step over all replicas; with `accumulation` k, one
    step sums the gradients of k equal parts of it, computed one after the other. `lr_scaling` is "none", "linear"
    (Goyal et al. 2017: times the replicas in sync) or "sqrt" (times their square root), reached over `warmup_epochs`.
    `precision` is a Keras dtype policy: "float32", "mixed_float16", "mixed_bfloat16". `jit` asks for XLA.
    `steps_per_execution` 0 leaves the number of steps per call to the loop.

    Strategy. `communication` (MultiWorkerMirrored): "auto", "ring", "nccl". `cross_device` (Mirrored): "auto", "nccl",
    "hierarchical_copy", "reduction_to_one_device". `min_shard_bytes` (ParameterServer): variables larger than this are
    partitioned over the parameter servers; 0 partitions none. `model_parallel` (tensor parallel): over how many of
    the gang's devices each layer is split; the remaining factor is data parallel. `micro_batches` (pipeline): in how
    many parts a batch walks through the stages. `tpu` names the TPU or gives its address.

    Data. `sharding` is "auto", "data", "file" or "off". `validation` is "gang" or "evaluator" (a replica of its own,
    which reads the checkpoints).

    Checkpoints. One every `checkpoint_steps` optimizer steps, 0 at the end of every epoch; `checkpoints_kept` 0 writes
    none. `resume_from` is the number of a stored checkpoint to begin with, 0 to begin anew.

    Scripts. `kind` "script" runs `code.entry` with `arguments` in `working_dir` (inside the code's folder), with
    `tf_config` (JSON text; "" lets Trainyard write it). `keras` None takes what suits the strategy. `requirements` are
    lines for pip, installed into an environment of the job.

    `time_limit_s` 0 means no limit. `max_restarts`: how often the job is tried again after failures of its program
    (those of machines are not counted).
    """

    name: str
    cluster: str
    code: CodeRef
    strategy: Strategy
    kind: Kind = Kind.RECIPE
    params: dict[str, ParamValue] = {}
    workers: int = 1
    ps: int = 0
    devices_per_worker: int = 1
    chief: bool = False
    global_batch_size: int = 64
    epochs: int = 5
    accumulation: int = 1
    learning_rate: float | None = None
    lr_scaling: str = "none"
    warmup_epochs: float = 0.0
    precision: str = "float32"
    jit: bool = False
    steps_per_execution: int = 0
    seed: int = 0
    communication: str = "auto"
    cross_device: str = "auto"
    min_shard_bytes: int = 0
    model_parallel: int = 1
    micro_batches: int = 4
    tpu: str = ""
    sharding: str = "auto"
    validation: str = "gang"
    checkpoint_steps: int = 0
    checkpoints_kept: int = 3
    resume_from: int = 0
    arguments: list[str] = []
    working_dir: str = ""
    tf_config: str = ""
    keras: Keras | None = None
    requirements: str = ""
    env: dict[str, str] = {}
    priority: int = 0
    time_limit_s: int = 0
    max_restarts: int = 0
    version: int = 2


def keras_of(spec: JobSpec) -> Keras:
    """The Keras that the job's processes speak: the one asked for, else tf_keras where Keras 3 does not work."""
    if spec.keras is not None:
        return spec.keras
    if spec.strategy is Strategy.PARAMETER_SERVER:  # Keras 3 loses updates there
        return Keras.TF_KERAS
    if spec.kind is Kind.SCRIPT and spec.strategy is Strategy.TENSOR_PARALLEL:  # DTensor's Keras layers are tf_keras'
        return Keras.TF_KERAS
    return Keras.KERAS3


def keeps_checkpoints(spec: JobSpec) -> bool:
    """Whether Trainyard's loop writes checkpoints for the job; a script's are its own affair."""
    return spec.kind is Kind.RECIPE and spec.checkpoints_kept > 0


def replicas_in_sync(spec: JobSpec) -> int:
    """How many copies of the model share one optimizer step (for a TPU 1, until it is reached)."""
    if spec.strategy is Strategy.PARAMETER_SERVER:
        return spec.devices_per_worker
    if spec.strategy in (Strategy.PIPELINE, Strategy.TPU):
        return 1
    devices = spec.workers * spec.devices_per_worker
    if spec.strategy is Strategy.TENSOR_PARALLEL:
        return max(1, devices // spec.model_parallel)
    return devices


def parts_of(spec: JobSpec) -> int:
    """In how many parts a replica computes its share of a step."""
    return spec.micro_batches if spec.strategy is Strategy.PIPELINE else spec.accumulation
