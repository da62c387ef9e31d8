"""What the agent decides: one event in, a list of instructions out. Pure, so every case is a unit test.

Everything is idempotent by (replica, attempt), so a command that arrives twice, late or out of order does no harm.
Every replica this node was ever told of ends with an Exit record in its spool, also one that was stopped before its
launch arrived. `agent.py` feeds it and carries the instructions out.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from worker_agent.protocol.commands import Command, Forget, Launch, Probe, Stop, Withdraw, saves_when_asked
from worker_agent.protocol.states import Cause, ReplicaStatus

FORGOTTEN_LIMIT = 10_000
SHUTDOWN_REASON = "The agent on this node was shut down."
SHUTDOWN_GRACE_S = 3.0
SHUTDOWN_SAVING_S = 10.0


class Key(NamedTuple):
    """One attempt of one replica."""

    replica_id: int
    attempt: int


class Phase(Enum):
    """Where a replica stands on this node."""

    PREPARING = auto()
    RUNNING = auto()
    ENDED = auto()


@dataclass(slots=True)
class Held:
    """A replica this node knows. `launch` is None when only a stop for it ever arrived."""

    launch: Launch | None
    phase: Phase
    pid: int = 0
    is_uploaded: bool = False

    @property
    def status(self) -> ReplicaStatus:
        """The same in the words of the protocol."""
        if self.phase is Phase.PREPARING:
            return ReplicaStatus.STARTING
        return ReplicaStatus.RUNNING if self.phase is Phase.RUNNING else ReplicaStatus.EXITED


# Events, beside the commands themselves.


@dataclass(frozen=True, slots=True)
class Restored:
    """The journal of an earlier agent holds this replica."""

    key: Key
    launch: Launch | None
    has_ended: bool
    is_uploaded: bool


@dataclass(frozen=True, slots=True)
class Started:
    """The shim runs (or was found running)."""

    key: Key
    pid: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The Exit record is in the spool."""

    key: Key


@dataclass(frozen=True, slots=True)
class Uploaded:
    """Every artifact was delivered, or will never be taken."""

    key: Key


@dataclass(frozen=True, slots=True)
class NotRecorded:
    """The journal could not be written, so the launch was not taken."""

    launch: Launch
    reason: str


@dataclass(frozen=True, slots=True)
class ShutdownAsked:
    """The agent is to leave; `end_replicas` takes its replicas along."""

    end_replicas: bool


Event = Command | Restored | Started | Ended | Uploaded | NotRecorded | ShutdownAsked


# Instructions.


@dataclass(frozen=True, slots=True)
class Record:
    """Write the launch to the journal, so that it survives the agent."""

    launch: Launch


@dataclass(frozen=True, slots=True)
class Ship:
    """Begin to ship the replica's streams."""

    key: Key


@dataclass(frozen=True, slots=True)
class Spawn:
    """Prepare and start it, or find it running already; `restored` if an earlier agent was told to."""

    launch: Launch
    restored: bool = False


@dataclass(frozen=True, slots=True)
class SignalStop:
    """Ask for its end, wherever it stands; first for a checkpoint (`save`), or for stacks, as `Stop` says."""

    key: Key
    cause: Cause
    reason: str
    grace_s: float
    save: bool = False
    stacks: bool = False


@dataclass(frozen=True, slots=True)
class WriteExit:
    """Say in its spool that it ended without ever having started."""

    key: Key
    cause: Cause
    message: str


@dataclass(frozen=True, slots=True)
class Upload:
    """Deliver what the training left in its artifacts folder."""

    key: Key
    launch: Launch


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete its folder, stop shipping."""

    key: Key


@dataclass(frozen=True, slots=True)
class SendAck:
    """Tell the control plane that the command was taken, or why not."""

    command_id: int
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Examine:
    """Look whether a job could run here."""

    probe: Probe


@dataclass(frozen=True, slots=True)
class EndExamining:
    """Nobody waits for what this preflight finds here any more."""

    preflight_id: int


Instruction = Record | Ship | Spawn | SignalStop | WriteExit | Upload | Remove | SendAck | Examine | EndExamining


@dataclass(slots=True)
class Core:
    """The replicas of this node."""

    held: dict[Key, Held] = field(default_factory=dict)
    is_leaving: bool = False
    _forgotten: OrderedDict[Key, None] = field(default_factory=OrderedDict)

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
                return [SendAck(event.command_id), Examine(event)]
            case Withdraw():
                return [SendAck(event.command_id), EndExamining(event.preflight_id)]
            case Restored():
                return self._restore(event)
            case Started(key, pid):
                return self._started(key, pid)
            case Ended(key):
                return self._ended(key)
            case Uploaded(key):
                return self._uploaded(key)
            case NotRecorded(launch, reason):
                del self.held[Key(launch.replica_id, launch.attempt)]
                return [SendAck(launch.command_id, f"the node could not write its journal: {reason}")]
            case ShutdownAsked(end_replicas):
                return self._leave(end_replicas=end_replicas)

    def _launch(self, launch: Launch) -> list[Instruction]:
        key = Key(launch.replica_id, launch.attempt)
        if key in self.held or key in self._forgotten:
            return [SendAck(launch.command_id)]
        if self.is_leaving:
            return []  # it is sent again, to the next agent
        self.held[key] = Held(launch, Phase.PREPARING)
        return [Record(launch), SendAck(launch.command_id), Ship(key), Spawn(launch)]

    def _stop(self, stop: Stop) -> list[Instruction]:
        key = Key(stop.replica_id, stop.attempt)
        reason = stop.reason or "It was stopped."
        ack = SendAck(stop.command_id)
        if key in self._forgotten:
            return [ack]
        if key not in self.held:
            self.held[key] = Held(None, Phase.ENDED, is_uploaded=True)
            return [WriteExit(key, stop.cause, f"{reason} It had not started yet."), Ship(key), ack]
        if self.held[key].phase is Phase.ENDED:
            return [ack]
        return [SignalStop(key, stop.cause, reason, stop.grace_s, stop.save, stop.stacks), ack]

    def _forget(self, forget: Forget) -> list[Instruction]:
        key = Key(forget.replica_id, forget.attempt)
        ack = SendAck(forget.command_id)
        replica = self.held.get(key)
        if replica is None:
            return [ack]
        if replica.phase is not Phase.ENDED or not replica.is_uploaded:
            # Unanswered, it comes again, also to an agent that has been started anew meanwhile.
            return []
        return [self._drop(key), ack]

    def _restore(self, event: Restored) -> list[Instruction]:
        key, launch = event.key, event.launch
        if event.has_ended or launch is None:
            is_uploaded = event.is_uploaded or launch is None
            self.held[key] = Held(launch, Phase.ENDED, is_uploaded=is_uploaded)
            uploads: list[Instruction] = [Upload(key, launch)] if launch is not None and not is_uploaded else []
            return [Ship(key), *uploads]
        self.held[key] = Held(launch, Phase.PREPARING)
        return [Ship(key), Spawn(launch, restored=True)]

    def _started(self, key: Key, pid: int) -> list[Instruction]:
        replica = self.held.get(key)
        if replica is not None and replica.phase is Phase.PREPARING:
            replica.phase, replica.pid = Phase.RUNNING, pid
        return []

    def _ended(self, key: Key) -> list[Instruction]:
        replica = self.held.get(key)
        if replica is None or replica.launch is None or replica.phase is Phase.ENDED:
            return []
        replica.phase, replica.pid = Phase.ENDED, 0
        return [Upload(key, replica.launch)]

    def _uploaded(self, key: Key) -> list[Instruction]:
        replica = self.held.get(key)
        if replica is None:
            return []
        replica.is_uploaded = True
        return []

    def _leave(self, *, end_replicas: bool) -> list[Instruction]:
        self.is_leaving = True
        if not end_replicas:
            return []
        return [
            _shut_down(key, replica.launch) for key, replica in self.held.items() if replica.phase is not Phase.ENDED
        ]

    def _drop(self, key: Key) -> Remove:
        del self.held[key]
        self._forgotten[key] = None
        if len(self._forgotten) > FORGOTTEN_LIMIT:
            self._forgotten.popitem(last=False)
        return Remove(key)


def _shut_down(key: Key, launch: Launch | None) -> SignalStop:
    """The end of a replica because its agent leaves: with a checkpoint, where it keeps any."""
    saves = launch is not None and saves_when_asked(launch)
    grace_s = SHUTDOWN_SAVING_S if saves else SHUTDOWN_GRACE_S
    return SignalStop(key, Cause.AGENT_SHUTDOWN, SHUTDOWN_REASON, grace_s, save=saves)
