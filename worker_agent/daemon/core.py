"""What the agent decides: one event in, a list of instructions out. Pure, so every case is a unit test.

Everything is idempotent by (replica, attempt), so a command that arrives twice, late or out of order does no harm.
Every replica this node was ever told of ends with an Exit record in its spool, also one that was stopped before its
launch arrived. `agent.py` feeds it and carries the instructions out.
"""

from collections import OrderedDict
from typing import NamedTuple

import msgspec

from worker_agent.protocol.commands import Command, Forget, Launch, Probe, Stop, WithdrawProbe, saves_when_asked
from worker_agent.protocol.states import Cause, ReplicaStatus

FORGOTTEN_LIMIT = 10_000
SHUTDOWN_REASON = "The agent on this node was shut down."
SHUTDOWN_GRACE_S = 3.0
SHUTDOWN_SAVING_S = 10.0


class ReplicaKey(NamedTuple):
    """One attempt of one replica."""

    replica_id: int
    attempt: int


def key_of(command: Launch | Stop | Forget) -> ReplicaKey:
    """The replica that a command is for."""
    return ReplicaKey(command.replica_id, command.attempt)


class HeldReplica(msgspec.Struct):
    """A replica that this node knows. `launch` is None when only a stop for it ever arrived."""

    launch: Launch | None
    status: ReplicaStatus
    pid: int = 0
    is_uploaded: bool = False

    @property
    def has_ended(self) -> bool:
        """Whether its Exit record is written."""
        return self.status is ReplicaStatus.EXITED


# Events, beside the commands themselves.


class ReplicaRestored(msgspec.Struct, frozen=True):
    """The journal of an earlier agent holds this replica."""

    key: ReplicaKey
    launch: Launch | None
    has_ended: bool
    is_uploaded: bool


class ReplicaStarted(msgspec.Struct, frozen=True):
    """The shim runs (or was found running)."""

    key: ReplicaKey
    pid: int


class ReplicaEnded(msgspec.Struct, frozen=True):
    """The Exit record is in the spool."""

    key: ReplicaKey


class ArtifactsUploaded(msgspec.Struct, frozen=True):
    """Every artifact was delivered, or will never be taken."""

    key: ReplicaKey


class LaunchNotRecorded(msgspec.Struct, frozen=True):
    """The journal could not be written, so the launch was not taken."""

    launch: Launch
    reason: str


class ShutdownRequested(msgspec.Struct, frozen=True):
    """The agent is to leave; `end_replicas` takes its replicas along."""

    end_replicas: bool


Event = (
    Command
    | ReplicaRestored
    | ReplicaStarted
    | ReplicaEnded
    | ArtifactsUploaded
    | LaunchNotRecorded
    | ShutdownRequested
)


# Instructions.


class RecordLaunch(msgspec.Struct, frozen=True):
    """Write the launch to the journal, so that it survives the agent."""

    launch: Launch


class ShipStreams(msgspec.Struct, frozen=True):
    """Begin to ship the replica's streams."""

    key: ReplicaKey


class StartReplica(msgspec.Struct, frozen=True):
    """Prepare and start it, or find it running already; `restored` if an earlier agent was told to."""

    launch: Launch
    restored: bool = False


class StopReplica(msgspec.Struct, frozen=True):
    """Ask for its end, wherever it stands; first for a checkpoint (`save`), or for stacks, as `Stop` says."""

    key: ReplicaKey
    cause: Cause
    reason: str
    grace_s: float
    save: bool = False
    stacks: bool = False


class WriteExit(msgspec.Struct, frozen=True):
    """Say in its spool that it ended without ever having started."""

    key: ReplicaKey
    cause: Cause
    message: str


class UploadArtifacts(msgspec.Struct, frozen=True):
    """Deliver what the training left in its artifacts folder."""

    key: ReplicaKey
    launch: Launch


class RemoveReplica(msgspec.Struct, frozen=True):
    """Delete its folder, stop shipping."""

    key: ReplicaKey


class SendAck(msgspec.Struct, frozen=True):
    """Tell the control plane that the command was taken, or why not."""

    command_id: int
    refused: str = ""


class RunProbe(msgspec.Struct, frozen=True):
    """Look whether a job could run here."""

    probe: Probe


class CancelProbe(msgspec.Struct, frozen=True):
    """Nobody waits for what this preflight finds here any more."""

    preflight_id: int


Instruction = (
    RecordLaunch
    | ShipStreams
    | StartReplica
    | StopReplica
    | WriteExit
    | UploadArtifacts
    | RemoveReplica
    | SendAck
    | RunProbe
    | CancelProbe
)


class Core:
    """The replicas of this node."""

    def __init__(self) -> None:
        self.held: dict[ReplicaKey, HeldReplica] = {}
        self._is_leaving = False
        self._forgotten: OrderedDict[ReplicaKey, None] = OrderedDict()

    def handle(self, event: Event) -> list[Instruction]:
        """What follows from `event`."""
        match event:
            case Launch():
                return self._launch(event)
            case Stop():
                return self._stop(event)
            case Forget():
                return self._forget(event)
            case Probe():
                return [SendAck(event.command_id), RunProbe(event)]
            case WithdrawProbe():
                return [SendAck(event.command_id), CancelProbe(event.preflight_id)]
            case ReplicaRestored():
                return self._restore(event)
            case ReplicaStarted(key, pid):
                return self._note_start(key, pid)
            case ReplicaEnded(key):
                return self._note_end(key)
            case ArtifactsUploaded(key):
                return self._note_upload(key)
            case LaunchNotRecorded(launch, reason):
                del self.held[key_of(launch)]
                return [SendAck(launch.command_id, f"the node could not write its journal: {reason}")]
            case ShutdownRequested(end_replicas):
                return self._leave(end_replicas=end_replicas)

    def _launch(self, launch: Launch) -> list[Instruction]:
        key = key_of(launch)
        if key in self.held or key in self._forgotten:
            return [SendAck(launch.command_id)]
        if self._is_leaving:
            return []  # it is sent again, to the next agent
        self.held[key] = HeldReplica(launch, ReplicaStatus.STARTING)
        return [RecordLaunch(launch), SendAck(launch.command_id), ShipStreams(key), StartReplica(launch)]

    def _stop(self, stop: Stop) -> list[Instruction]:
        key = key_of(stop)
        reason = stop.reason or "It was stopped."
        ack = SendAck(stop.command_id)
        if key in self._forgotten:
            return [ack]
        if key not in self.held:
            self.held[key] = HeldReplica(None, ReplicaStatus.EXITED, is_uploaded=True)
            return [WriteExit(key, stop.cause, f"{reason} It had not started yet."), ShipStreams(key), ack]
        if self.held[key].has_ended:
            return [ack]
        return [StopReplica(key, stop.cause, reason, stop.grace_s, stop.save, stop.stacks), ack]

    def _forget(self, forget: Forget) -> list[Instruction]:
        key = key_of(forget)
        ack = SendAck(forget.command_id)
        replica = self.held.get(key)
        if replica is None:
            return [ack]
        if not replica.has_ended or not replica.is_uploaded:
            # Unanswered, it comes again, also to an agent that has been started anew meanwhile.
            return []
        return [self._drop(key), ack]

    def _restore(self, event: ReplicaRestored) -> list[Instruction]:
        key, launch = event.key, event.launch
        if event.has_ended or launch is None:
            is_uploaded = event.is_uploaded or launch is None
            self.held[key] = HeldReplica(launch, ReplicaStatus.EXITED, is_uploaded=is_uploaded)
            if launch is None or is_uploaded:
                return [ShipStreams(key)]
            return [ShipStreams(key), UploadArtifacts(key, launch)]
        self.held[key] = HeldReplica(launch, ReplicaStatus.STARTING)
        return [ShipStreams(key), StartReplica(launch, restored=True)]

    def _note_start(self, key: ReplicaKey, pid: int) -> list[Instruction]:
        replica = self.held.get(key)
        if replica is not None and replica.status is ReplicaStatus.STARTING:
            replica.status, replica.pid = ReplicaStatus.RUNNING, pid
        return []

    def _note_end(self, key: ReplicaKey) -> list[Instruction]:
        replica = self.held.get(key)
        if replica is None or replica.launch is None or replica.has_ended:
            return []
        replica.status, replica.pid = ReplicaStatus.EXITED, 0
        return [UploadArtifacts(key, replica.launch)]

    def _note_upload(self, key: ReplicaKey) -> list[Instruction]:
        replica = self.held.get(key)
        if replica is None:
            return []
        replica.is_uploaded = True
        return []

    def _leave(self, *, end_replicas: bool) -> list[Instruction]:
        self._is_leaving = True
        if not end_replicas:
            return []
        return [_shut_down(key, replica.launch) for key, replica in self.held.items() if not replica.has_ended]

    def _drop(self, key: ReplicaKey) -> RemoveReplica:
        del self.held[key]
        self._forgotten[key] = None
        if len(self._forgotten) > FORGOTTEN_LIMIT:
            self._forgotten.popitem(last=False)
        return RemoveReplica(key)


def _shut_down(key: ReplicaKey, launch: Launch | None) -> StopReplica:
    """The end of a replica because its agent leaves: with a checkpoint, where it keeps any."""
    saves = launch is not None and saves_when_asked(launch)
    grace_s = SHUTDOWN_SAVING_S if saves else SHUTDOWN_GRACE_S
    return StopReplica(key, Cause.AGENT_SHUTDOWN, SHUTDOWN_REASON, grace_s, save=saves)
