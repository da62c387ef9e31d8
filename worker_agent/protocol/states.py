"""The words both sides of the wire use for what runs where: roles, strategies, statuses, causes.

Everything here is a string enum, so a value is readable in the database, on the wire and in REST alike. Which status
may follow which is the control plane's business (`orchestrator/domain/lifecycle.py`).
"""

from enum import StrEnum
from typing import Self


class Strategy(StrEnum):
    """How one training is spread over devices. Names are REST names and never change meaning."""

    ONE_DEVICE = "one_device"
    MIRRORED = "mirrored"
    MULTI_WORKER_MIRRORED = "multi_worker_mirrored"
    PARAMETER_SERVER = "parameter_server"
    CENTRAL_STORAGE = "central_storage"
    TPU = "tpu"
    TENSOR_PARALLEL = "tensor_parallel"
    PIPELINE = "pipeline"


class Choice(StrEnum):
    """A value that people choose: its name in REST, the label that pages show, and where needed a sentence of help."""

    label: str
    help: str

    def __new__(cls, value: str, label: str, help: str = "") -> Self:
        member = str.__new__(cls, value)
        member._value_, member.label, member.help = value, label, help
        return member


class Kind(Choice):
    """What a job's program is: a recipe that Trainyard's loop trains, or any Python program, run as it stands."""

    RECIPE = "recipe", "Recipe", "Defines a model and its data. Trainyard trains it, with any strategy."
    SCRIPT = "script", "Script", "Any TensorFlow program. It runs unchanged, with TF_CONFIG set."


class Keras(Choice):
    """Which Keras a process imports as `keras` and `tf.keras`. One process holds one of the two."""

    KERAS3 = "keras3", "Keras 3"
    TF_KERAS = "tf_keras", "tf_keras (Keras 2)"


class Role(StrEnum):
    """The TensorFlow task type of a replica (`tf.distribute` cluster spec names)."""

    CHIEF = "chief"
    WORKER = "worker"
    PS = "ps"
    EVALUATOR = "evaluator"


class JobStatus(StrEnum):
    """Where a job stands. Terminal: SUCCEEDED, FAILED, STOPPED."""

    SUBMITTED = "submitted"
    LAUNCHING = "launching"
    RUNNING = "running"
    RESTARTING = "restarting"
    PAUSING = "pausing"
    PAUSED = "paused"
    STOPPING = "stopping"
    STOPPED = "stopped"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class ReplicaStatus(StrEnum):
    """Where one TensorFlow process stands. LOST is set by the control plane alone."""

    ASSIGNED = "assigned"
    STARTING = "starting"
    RUNNING = "running"
    EXITED = "exited"
    LOST = "lost"


class NodeState(StrEnum):
    """What a node may be used for. LEAVING: its agent has said that it ends. LOST: it has been silent too long."""

    READY = "ready"
    CORDONED = "cordoned"
    DRAINING = "draining"
    LEAVING = "leaving"
    LOST = "lost"


class Cause(StrEnum):
    """Why a replica ended, and so why an attempt ended. The job's status is derived from it.

    PREEMPTED: a SIGTERM that Trainyard did not send, as a machine gives it that is about to go.
    """

    COMPLETED = "completed"
    STOPPED = "stopped"
    PAUSED = "paused"
    PREEMPTED = "preempted"
    EXCEPTION = "exception"
    EXIT_CODE = "exit_code"
    SIGNAL = "signal"
    OUT_OF_MEMORY = "out_of_memory"
    LOSS_NOT_FINITE = "loss_not_finite"
    RENDEZVOUS_TIMEOUT = "rendezvous_timeout"
    PORT_TAKEN = "port_taken"
    LAUNCH_REFUSED = "launch_refused"
    TIME_LIMIT = "time_limit"
    AGENT_SHUTDOWN = "agent_shutdown"
    NODE_LOST = "node_lost"
    LEASE_LOST = "lease_lost"
    HUNG = "hung"


# The exit status of a training process that has saved a checkpoint and left because it was asked to.
SAVED_CODE = 75


class DeviceKind(StrEnum):
    """What a device slot is: a real GPU, or a logical CPU slot where a node has none."""

    GPU = "gpu"
    CPU = "cpu"
