"""Commands: control plane → agent. Short, idempotent by (replica, attempt), carried signed in an envelope."""

from collections.abc import Mapping

import msgspec

from worker_agent.protocol.checkpoint import Restore
from worker_agent.protocol.job.job_spec import JobSpec, keeps_checkpoints
from worker_agent.protocol.job.script.script_text import READ_AT_IMPORT
from worker_agent.protocol.job.workload import Question
from worker_agent.protocol.states import Cause, DeviceKind, Keras, Role

COMMAND_TASK = "trainyard.agent.command"
# The fields of a job that agents of the version before do not know: they are sent where a job sets them. To be emptied
# with each release.
NEWER_FIELDS = frozenset(("chief", "files", "files_limit_mb", "max_steps", "printed"))
_DEFAULTS = {
    each.name: each.default if each.default_factory is msgspec.NODEFAULT else each.default_factory()
    for each in msgspec.structs.fields(JobSpec)
}
PERMIT_S = 30
PERMITTED, WITHDRAWN = b"1", b"0"


def queue_name(node_id: str) -> str:
    """The Celery queue that a node's agent reads."""
    return f"node.{node_id}"


def permit_key(command_id: int) -> str:
    """The Redis key of a launch's permit: `PERMITTED` for `PERMIT_S` after each sending, and for as long as the process
    of a launch that was taken is awaited; then `WITHDRAWN` or gone.

    A command may lie in its queue, or on a line that was cut, until the gang is at work elsewhere: no agent begins a
    launch without having seen its permit.
    """
    return f"trainyard:permit:{command_id}"


class Launch(msgspec.Struct, frozen=True, kw_only=True, tag="launch"):
    """Start one replica. `tf_config` None means the process gets no TF_CONFIG at all (one device, Mirrored).

    `devices` are device indexes on the node; empty for a replica that computes nothing (ps, coordinator).
    `learning_rate` is the effective rate after scaling. `checkpoints` is the job's folder in the place that the
    cluster shares, "" where it has none; `restore` the checkpoint to begin with. `lease_s` is how long the process may
    go on while its node cannot be reached, 0 for ever. `env` are the cluster's variables. `incarnation` is 0, and grows
    with each process that takes the place of one before it while its gang goes on.
    """

    command_id: int
    replica_id: int
    job_id: int
    attempt: int
    spec: JobSpec
    role: Role = Role.WORKER
    index: int = 0
    tf_config: dict[str, object] | None = None
    host: str = ""
    port: int = 0
    devices: list[int] = []
    device_kind: DeviceKind = DeviceKind.CPU
    learning_rate: float | None = None
    rendezvous_timeout_s: float = 120.0
    env: dict[str, str] = {}
    checkpoints: str = ""
    restore: Restore | None = None
    lease_s: float = 0.0
    incarnation: int = 0


def fields_set(spec: JobSpec) -> set[str]:
    """The fields that are something else than their default."""
    return {name for name in JobSpec.__struct_fields__ if getattr(spec, name) != _DEFAULTS[name]}


def sendable(command: "Command") -> object:
    """The command without newer fields that its job does not set, so that an older agent takes it."""
    if not isinstance(command, Launch | Probe):
        return command
    body = msgspec.to_builtins(command, builtin_types=(bytes,))
    unset = NEWER_FIELDS - fields_set(command.spec)
    body["spec"] = {name: value for name, value in body["spec"].items() if name not in unset}
    return body


def environment_of(launch: Launch) -> dict[str, str]:
    """The variables of its process: the cluster's, and before them the job's."""
    return launch.env | launch.spec.env


def imports_for_itself(spec: JobSpec, env: Mapping[str, str]) -> bool:
    """Whether something counts that has to be there before TensorFlow is imported: variables of the job or the cluster
    (`env`), or packages of the job's own."""
    return bool(spec.requirements) or any(name.startswith(READ_AT_IMPORT) for name in (*env, *spec.env))


def saves_when_asked(launch: Launch) -> bool:
    """Whether it writes checkpoints together with its gang, or serves those who do."""
    return keeps_checkpoints(launch.spec) and launch.role is not Role.EVALUATOR


class Stop(msgspec.Struct, frozen=True, kw_only=True, tag="stop"):
    """End one replica: SIGTERM to its group, SIGKILL after `grace_s`. Harmless when it has ended already.

    `cause` is what its end will be called. `save` asks for a checkpoint first, on which the whole gang agrees; `stacks`
    for the stacks of its threads, as an artifact.
    """

    command_id: int
    replica_id: int
    attempt: int
    grace_s: float = 10.0
    reason: str = ""
    cause: Cause = Cause.STOPPED
    save: bool = False
    stacks: bool = False


class Forget(msgspec.Struct, frozen=True, kw_only=True, tag="forget"):
    """Everything of the replica has arrived: its folder on the node may be removed."""

    command_id: int
    replica_id: int
    attempt: int


class Door(msgspec.Struct, frozen=True, kw_only=True):
    """Where a process of a gang would listen: `label` is its name (`worker:0`), `node` its node's."""

    label: str
    node: str
    host: str
    port: int


class Probe(msgspec.Struct, frozen=True, kw_only=True, tag="probe"):
    """Look whether a job could run here; nothing of it is started, and nothing that runs is touched.

    `node` is the name of the node that is asked, `own` are the doors it would open, `others` those on other nodes, with
    whom it meets within `window_s`; `key` is known to the nodes of this preflight alone. `checkpoints` is the folder
    that the cluster shares, "" where it shares none. `builds` asks for the program to be loaded and its model built,
    `trains` for the first batch of it to be trained as well, `question` for the model to be measured (a recipe's).
    """

    command_id: int
    preflight_id: int
    node: str
    spec: JobSpec
    env: dict[str, str] = {}
    key: str = ""
    own: list[Door] = []
    others: list[Door] = []
    devices: list[int] = []
    device_kind: DeviceKind = DeviceKind.CPU
    checkpoints: str = ""
    builds: bool = False
    trains: bool = True
    window_s: float = 10.0
    build_limit_s: float = 120.0
    question: Question | None = None


class WithdrawProbe(msgspec.Struct, frozen=True, kw_only=True, tag="withdraw"):
    """Nobody waits for the answer to this `Probe` any more: what is being built for it is ended."""

    command_id: int
    preflight_id: int


class Expect(msgspec.Struct, frozen=True, kw_only=True, tag="expect"):
    """A launch with this Keras may come soon: what makes its start short may be made ready.

    Nothing is promised: it is in no outbox, nobody acknowledges it, and a node that never hears of it starts the job
    all the same.
    """

    keras: Keras


Command = Launch | Stop | Forget | Probe | WithdrawProbe | Expect
