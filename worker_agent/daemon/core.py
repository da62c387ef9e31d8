"""What the agent decides: one event in, a list of instructions out. Pure, so every case is a unit test.

Everything is idempotent by (replica, attempt), so a command that arrives twice, late or out of order does no harm.
Every replica this node was ever told of ends with an Exit record in its spool, also one that was stopped before its
launch arrived. `agent.py` feeds it and carries the instructions out.
"""

from typing import NamedTuple

import msgspec

from worker_agent.protocol.commands import Command, Expect, Forget, Launch, Probe, Stop, WithdrawProbe, saves_when_asked
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
    """The journal could not be written, so the launch was not taken: it is sent again, or given up after a while."""

    launch: Launch


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


# Instructions, beside commands that are to be carried out as they came.


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


class WriteExit(msgspec.Struct, frozen=True):
    """Say in its spool that it ended without ever having started."""

    key: ReplicaKey
    cause: Cause
    message: str


class UploadArtifacts(msgspec.Struct, frozen=True):
    """Deliver the rest of what the training left for its owner."""

    key: ReplicaKey
    launch: Launch


class RemoveReplica(msgspec.Struct, frozen=True):
    """Delete its folder, stop shipping."""

    key: ReplicaKey


class SendAck(msgspec.Struct, frozen=True):
    """Tell the control plane that the command was taken."""

    command_id: int


Instruction = (
    Stop
    | Probe
    | WithdrawProbe
    | Expect
    | RecordLaunch
    | ShipStreams
    | StartReplica
    | WriteExit
    | UploadArtifacts
    | RemoveReplica
    | SendAck
)


class Core:
    """The replicas of this node."""

    def __init__(self) -> None:
        self.held: dict[ReplicaKey, HeldReplica] = {}
        self._is_leaving = False
        self._forgotten: dict[ReplicaKey, None] = {}

    def handle(self, event: Event) -> list[Instruction]:
        """What follows from `event`."""
        match event:
            case Launch():
                return self._launch(event)
            case Stop():
                return self._stop(event)
            case Forget():
                return self._forget(event)
            case Probe() | WithdrawProbe():
                return [SendAck(event.command_id), event]
            case Expect():
                return [] if self._is_leaving else [event]
            case ReplicaRestored():
                return self._restore(event)
            case ReplicaStarted(key, pid):
                replica = self.held.get(key)
                if replica is not None and replica.status is ReplicaStatus.STARTING:
                    replica.status, replica.pid = ReplicaStatus.RUNNING, pid
                return []
            case ReplicaEnded(key):
                replica = self.held.get(key)
                if replica is None or replica.launch is None or replica.has_ended:
                    return []
                replica.status, replica.pid = ReplicaStatus.EXITED, 0
                return [UploadArtifacts(key, replica.launch)]
            case ArtifactsUploaded(key):
                if (replica := self.held.get(key)) is not None:
                    replica.is_uploaded = True
                return []
            case LaunchNotRecorded(launch):
                del self.held[key_of(launch)]
                return []
            case ShutdownRequested(end_replicas):
                self._is_leaving = True
                running = [held.launch for held in self.held.values() if held.launch and not held.has_ended]
                return [_shut_down(launch) for launch in running] if end_replicas else []

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
        return [msgspec.structs.replace(stop, reason=reason), ack]

    def _forget(self, forget: Forget) -> list[Instruction]:
        key = key_of(forget)
        ack = SendAck(forget.command_id)
        replica = self.held.get(key)
        if replica is None:
            return [ack]
        if not replica.has_ended or not replica.is_uploaded:
            # Unanswered, it comes again, also to an agent that has been started anew meanwhile.
            return []
        del self.held[key]
        self._forgotten[key] = None
        if len(self._forgotten) > FORGOTTEN_LIMIT:
            del self._forgotten[next(iter(self._forgotten))]
        return [RemoveReplica(key), ack]

    def _restore(self, event: ReplicaRestored) -> list[Instruction]:
        key, launch = event.key, event.launch
        if launch is None:
            self.held[key] = HeldReplica(None, ReplicaStatus.EXITED, is_uploaded=True)
            return [ShipStreams(key)]
        if not event.has_ended:
            self.held[key] = HeldReplica(launch, ReplicaStatus.STARTING)
            return [ShipStreams(key), StartReplica(launch, restored=True)]
        self.held[key] = HeldReplica(launch, ReplicaStatus.EXITED, is_uploaded=event.is_uploaded)
        return [ShipStreams(key)] if event.is_uploaded else [ShipStreams(key), UploadArtifacts(key, launch)]


def _shut_down(launch: Launch) -> Stop:
    """The end of a replica because its agent leaves: with a checkpoint, where it keeps any."""
    saves = saves_when_asked(launch)
    return Stop(
        command_id=0,
        replica_id=launch.replica_id,
        attempt=launch.attempt,
        cause=Cause.AGENT_SHUTDOWN,
        reason=SHUTDOWN_REASON,
        grace_s=SHUTDOWN_SAVING_S if saves else SHUTDOWN_GRACE_S,
        save=saves,
    )
