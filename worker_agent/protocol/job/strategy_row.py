"""What a row of the table of strategies (`strategies.py`) holds. Both sides of the wire read it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.protocol.states import Keras, Role


class Split(Enum):
    """Over what a strategy divides the global batch of one optimizer step."""

    DEVICES = auto()  # all devices of all workers
    ONE_WORKER = auto()  # the devices of one worker, which makes an update of its own
    GROUPS = auto()  # groups of `model_parallel` devices, each of which holds the model once
    STAGES = auto()  # nothing: it walks through the stages in micro-batches
    CORES = auto()  # cores that are counted when the TPU is reached


@dataclass(frozen=True)
class Limit:
    """What a strategy does not do: refused at `field` where `broken` is true of the spec. `sentence` says why and what
    to do instead; it is filled from the spec (`{s.workers}`) and the strategy's name (`{label}`). Names that a request
    is written with stand in backquotes."""

    field: str
    broken: Callable[[JobSpec], bool]
    sentence: str


@dataclass(frozen=True)
class Derived:
    """A default that follows from other fields, and what it is in words."""

    words: str
    of: Callable[[Mapping[str, Any]], int]


@dataclass(frozen=True, kw_only=True)
class StrategyRow:
    """Everything that is particular to one strategy.

    Words. `label` and `summary` are for pages; the documentation adds `guide`: when to take it, what to know.

    Fields. `reads` are the fields that not every strategy reads, `defaults` what some of them are unless they are
    given. `refuses` says why a field has to keep its default; `limits` what else cannot be asked for. `split` is how a
    batch is divided, `batch_note` what is added to that in words.

    Gang. `coordinated`: a chief that computes nothing builds the model on parameter servers and hands out the work, so
    that a worker holds no variables and can be lost alone. `leader_drives`: the others only serve it, and its
    end is the training's. `one_cpu_device`: TensorFlow uses one CPU device of each of its processes.

    Training. `module` is where it is built, in `worker_agent/trainer/strategies`; `class_name` what a script calls it.
    `no_scripts` says why scripts cannot have it. `keras` are the flavours that a recipe can have, the default first,
    `other_keras` says why no other; `script_keras` is the default of a script. `shares_checkpoints`: it stores the
    variables of the whole model, as the others that do. `measured` are series that tell how it works; `times_steps`: a
    recipe tells the parts of its steps (`records.StepPart`).
    """

    label: str
    summary: str
    guide: str
    module: str
    class_name: str = ""
    reads: frozenset[str] = frozenset()
    defaults: Mapping[str, int | Derived] = field(default_factory=dict)
    split: Split = Split.DEVICES
    batch_note: str = ""
    coordinated: bool = False
    leader_drives: bool = False
    one_cpu_device: bool = False
    no_scripts: str = ""
    keras: tuple[Keras, ...] = (Keras.KERAS3, Keras.TF_KERAS)
    other_keras: str = ""
    script_keras: Keras = Keras.KERAS3
    shares_checkpoints: bool = True
    measured: tuple[str, ...] = ()
    times_steps: bool = False
    limits: tuple[Limit, ...] = ()
    refuses: Mapping[str, str] = field(default_factory=dict)

    @property
    def computing(self) -> tuple[Role, ...]:
        """The roles of the processes that compute gradients."""
        return (Role.WORKER,) if self.coordinated else (Role.CHIEF, Role.WORKER)

    @property
    def is_gang(self) -> bool:
        """Whether it has several processes, each of which gets a TF_CONFIG."""
        return "workers" in self.reads
