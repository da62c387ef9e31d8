"""Records: what a replica says, as written to its spool. Numbers and text only; non-finite floats travel as floats
(msgpack carries NaN and infinity), and are turned into words where JSON begins.

Two writers, so two streams per replica: `trainer` (the training process) and `shim` (its parent).
"""

from enum import StrEnum
from typing import Any

import msgspec

from worker_agent.protocol.ending import Ending
from worker_agent.protocol.states import Cause

# The facts that tell the longest time between two steps of a process (s): whatever it did in between, and where it did
# nothing but take steps.
LONGEST_GAP = "longest_pause_s"
LONGEST_STEP = "longest_step_s"
# How the series of a step's parts begin; the first points come after so long a training, then at such intervals.
STEP_PART = "step_part/"
STEP_PARTS_AFTER_S = 20.0
STEP_PARTS_EVERY_S = 10.0
# What a fact may be: plain JSON, so that pages and REST show it as it is.
FactValue = Any


class Stream(StrEnum):
    """The spool streams of one replica; each has its own offsets and cursor."""

    TRAINER = "trainer"
    SHIM = "shim"


class Points(msgspec.Struct, frozen=True, kw_only=True, tag="points", array_like=False):
    """A run of points of the same scalars: `values[i][j]` is scalar `names[i]` at `steps[j]`, `times[j]` (unix s)."""

    names: list[str]
    steps: list[int]
    times: list[float]
    values: list[list[float]]


class StepPart(StrEnum):
    """Where the time of a training step goes, in the order of the time; together they are the whole step.

    A process that trains measures them on single steps, now and then: `trainer/loop/step_parts.py`.
    """

    INPUT = "input"  # waiting for the next batch
    COMPUTE = "compute"  # forward and backward pass
    WAIT = "wait"  # for the slowest replica, before gradients can be summed
    COMMUNICATION = "communication"  # summing the gradients of all replicas
    APPLY = "apply"  # the optimizer
    HOST = "host"  # Python between two calls of many steps: callbacks, records, the loop itself

    @property
    def series(self) -> str:
        """The name of its points, in ms a step."""
        return f"{STEP_PART}{self}"


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag="progress"):
    """How far the training is. `step` counts optimizer steps from 0; `total_steps` 0 when unknown. `epoch` from 1."""

    at: float
    step: int
    total_steps: int
    epoch: int
    epochs: int


class PhaseName(StrEnum):
    """What a training process is at, and in the end how it left.

    STEPPING: a script says that one step comes after the other; TRAINING: it may do anything. SERVING: others compute
    on its devices. LEAVING: it serves on for a while, though somebody else than the control plane asked it to leave, so
    that its gang can be paused. PAUSED, PREEMPTED: it has saved and left, asked by Trainyard or from outside.
    """

    INSTALLING = "installing"
    IMPORTING = "importing"
    RENDEZVOUS = "rendezvous"
    BUILDING = "building"
    TRAINING = "training"
    STEPPING = "stepping"
    VALIDATING = "validating"
    CALLBACKS = "callbacks"
    SAVING = "saving"
    SERVING = "serving"
    EVALUATING = "evaluating"
    LEAVING = "leaving"
    PAUSED = "paused"
    PREEMPTED = "preempted"
    DONE = "done"


class Phase(msgspec.Struct, frozen=True, kw_only=True, tag="phase"):
    """A milestone of the process: a `PhaseName`, or one that only a newer agent knows. `detail` of LEAVING is the
    cause."""

    at: float
    name: str
    detail: str = ""


class Facts(msgspec.Struct, frozen=True, kw_only=True, tag="facts"):
    """What is particular to this replica's strategy, told once it is known and again when it changes: devices, mesh and
    layouts, stages, load of a parameter server, memory. Later facts of the same name replace earlier ones."""

    at: float
    facts: dict[str, FactValue]


class Summary(msgspec.Struct, frozen=True, kw_only=True, tag="summary"):
    """Epoch-level values (`loss`, `accuracy`, `val_loss`, …): the latest are the job's metrics."""

    at: float
    epoch: int
    metrics: dict[str, float]


class Checkpointed(msgspec.Struct, frozen=True, kw_only=True, tag="checkpointed"):
    """A checkpoint is complete on disk: in the folder that the cluster shares if `shared`, else on its node, from where
    the agent brings it to the control plane. `sha256` is its marker's; `kept` are the names of those that are still
    there beside it. It took `seconds` to write."""

    at: float
    name: str
    step: int
    epoch: int
    metrics: dict[str, float]
    size_bytes: int
    sha256: str
    shared: bool
    kept: list[str]
    seconds: float


class Failure(msgspec.Struct, frozen=True, kw_only=True, tag="failure"):
    """The training process knows why it ends: the cause, one sentence, and the traceback for the log. `ending` None
    comes from a version that had none."""

    at: float
    cause: Cause
    message: str
    traceback: str = ""
    ending: Ending | None = None


class Started(msgspec.Struct, frozen=True, kw_only=True, tag="started"):
    """The shim has started the training process. Times are unix seconds on the node's clock."""

    at: float
    pid: int
    pgid: int
    warm: bool


class Log(msgspec.Struct, frozen=True, kw_only=True, tag="log"):
    """Output of the process group, whole lines where possible, UTF-8 with replacement, NUL removed."""

    at: float
    text: str


class Gap(msgspec.Struct, frozen=True, kw_only=True, tag="gap"):
    """Bytes that are missing (a flood, a full disk, a damaged spool): counted, never silent."""

    at: float
    size_bytes: int
    reason: str


class LeftoverKind(StrEnum):
    """What an ended replica may leave behind. A `PORT` alone says nothing against the devices."""

    PROCESS = "process"
    PORT = "port"
    MEMORY = "memory"


class Leftover(msgspec.Struct, frozen=True, kw_only=True):
    """Something that an ended replica could not give back, in words: `process 4711 (python)`."""

    kind: LeftoverKind
    words: str


class Exit(msgspec.Struct, frozen=True, kw_only=True, tag="exit"):
    """The process group is gone. `code` is the exit status, or None when `signal` ended it.

    `final` gives the length of every stream, so "complete" can be told from "still arriving". `leftovers` are what
    could not be given back (a process, the port, memory of a GPU); empty is the proof that everything was. `ending`
    None comes from a version that had none.
    """

    at: float
    code: int | None
    signal: int | None
    cause: Cause
    message: str
    final: dict[str, int]
    leftovers: list[Leftover] = msgspec.field(name="left", default_factory=list)
    ending: Ending | None = None


Record = Points | Progress | Phase | Facts | Summary | Checkpointed | Failure | Started | Log | Gap | Exit
