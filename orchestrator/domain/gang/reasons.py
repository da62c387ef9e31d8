"""Why a replica ended, in words that name it and its node. Shown on the job's page, in its events and in REST."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from worker_agent.protocol.ending import KERNEL_SHOWED as KERNELS_VIEW
from worker_agent.protocol.states import NODE_LEAVES, SAVED_CODE, Cause, ReplicaStatus, Role

LAST_LINES = " The last lines it wrote:\n"
# Why a process may be asked to save a checkpoint and leave.
LEAVE_TO_SAVE = frozenset({Cause.PAUSED, *NODE_LEAVES})
# A longer one is cut where it is stored.
REASON_CHARS = 8000
# How the trainer begins what it says of an error that another process's end explains (`worker_agent/trainer/failure`).
PEER_AWAY = "A peer went away"
# TensorFlow aborts a process whose gang's coordination service is gone; its log says so.
COORDINATION = "coordination service"


@dataclass(frozen=True)
class ReplicaFacts:
    """One replica as `failure.decide` sees it. `message` is what the node said about its end; `node_takes` says whether
    that node takes a process in its place; `is_leaving` that it was asked from outside to leave, and still serves."""

    role: Role
    index: int
    node_name: str
    status: ReplicaStatus
    cause: Cause | None = None
    message: str = ""
    exit_code: int | None = None
    signal: int | None = None
    ended_at: datetime | None = None
    node_takes: bool = True
    is_leaving: bool = False

    @property
    def who(self) -> str:
        """`worker 1 on node-2`."""
        return f"{self.role.value} {self.index} on {self.node_name}"

    @property
    def has_saved(self) -> bool:
        """Whether it left after its gang had agreed on a step and saved it."""
        return saved_and_left(self.cause, self.exit_code)


def reason_of(replica: ReplicaFacts) -> str:
    """One sentence with the cause, then what else the node said (the last lines of its log)."""
    said, _, lines = replica.message.partition(LAST_LINES)
    tail = f"{LAST_LINES}{lines}" if lines else ""
    if replica.cause is Cause.SIGNAL and replica.signal is not None:
        return f"{replica.who} was killed by signal {replica.signal} ({signal_name(replica.signal)}).{tail}"
    if replica.cause is Cause.EXIT_CODE and replica.exit_code is not None and said.startswith("The process ended"):
        return f"{replica.who} ended with exit code {replica.exit_code}.{tail}"
    return f"{replica.who} {_verb(replica.cause)}{f': {said}' if said else '.'}{tail}"


def adding(reason: str, sentence: str) -> str:
    """The reason with a sentence of ours after its own, before the lines of the log."""
    said, marker, lines = reason.partition(LAST_LINES)
    if said and sentence and not said.endswith((".", "!", "?", "…")):
        said = f"{said}."
    return f"{f'{said} {sentence}'.strip()}{marker}{lines}"


def listed(names: Sequence[str]) -> str:
    """`worker 1`, or `chief 0, ps 0 and ps 1`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def lost_a_peer(cause: Cause | None, number: int | None, message: str) -> bool:
    """Whether a process of this end, signal and message ended only because it lost another one of its gang."""
    if cause is Cause.SIGNAL:
        return number == signal.SIGABRT and COORDINATION in message.lower()
    return cause is Cause.EXCEPTION and message.startswith(PEER_AWAY)


def saved_and_left(cause: str | None, exit_code: int | None) -> bool:
    """Whether a process of this end left after its gang had agreed on a step and saved it."""
    return cause in LEAVE_TO_SAVE and exit_code == SAVED_CODE


def is_culprit(replica: ReplicaFacts) -> bool:
    """Whether it may have failed by itself: not who lost a peer; of a gang that hung, whom the kernel's view shows."""
    if replica.cause is Cause.HUNG:
        return KERNELS_VIEW in replica.message
    return not lost_a_peer(replica.cause, replica.signal, replica.message)


def hang_of(replica: ReplicaFacts, reason: str) -> str:
    """Why a gang hung: the reason for which it was ended, and what was then seen of this process. "" if it did not."""
    if replica.cause is not Cause.HUNG:
        return ""
    seen = replica.message.partition(KERNELS_VIEW)[2]
    return f"{reason} {replica.who}: {seen}" if seen else reason


def signal_name(number: int) -> str:
    """`SIGKILL` for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown signal"


def _verb(cause: Cause | None) -> str:
    return {
        Cause.COMPLETED: "completed",
        Cause.STOPPED: "was stopped",
        Cause.PAUSED: "was paused",
        Cause.PREEMPTED: "was asked from outside to leave",
        Cause.EXCEPTION: "failed",
        Cause.EXIT_CODE: "ended early",
        Cause.SIGNAL: "was killed",
        Cause.OUT_OF_MEMORY: "ran out of memory",
        Cause.LOSS_NOT_FINITE: "stopped because the loss is no longer a finite number",
        Cause.RENDEZVOUS_TIMEOUT: "waited in vain for the rest of its gang",
        Cause.PORT_TAKEN: "found its port taken",
        Cause.LAUNCH_REFUSED: "was not launched",
        Cause.TIME_LIMIT: "reached the time limit",
        Cause.AGENT_SHUTDOWN: "was ended because the agent of its node shut down",
        Cause.NODE_LOST: "was lost",
        Cause.LEASE_LOST: "was ended by its node, which had been out of touch",
        Cause.HUNG: "was ended because its gang hung",
        None: "is at work",
    }[cause]
