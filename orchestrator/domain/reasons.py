"""Why a replica ended, in words that name it and its node. Shown on the job's page, in its events and in REST."""

import signal
from dataclasses import dataclass
from datetime import datetime

from worker_agent.protocol.records import KERNELS_VIEW
from worker_agent.protocol.states import Cause, ReplicaStatus, Role

LAST_LINES = " The last lines it wrote:\n"
# A longer one is cut where it is stored.
REASON_CHARS = 8000


@dataclass(frozen=True)
class ReplicaFacts:
    """One replica as `failure.decide` sees it. `message` is what the node said about its end; `node_takes` says whether
    that node takes a process in its place."""

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

    @property
    def who(self) -> str:
        """`worker 1 on node-2`."""
        return f"{self.role.value} {self.index} on {self.node_name}"


def reason_of(replica: ReplicaFacts) -> str:
    """One sentence with the cause, then what else the node said (the last lines of its log)."""
    said, _, lines = replica.message.partition(LAST_LINES)
    tail = f"{LAST_LINES}{lines}" if lines else ""
    if replica.cause is Cause.SIGNAL and replica.signal is not None:
        return f"{replica.who} was killed by signal {replica.signal} ({signal_name(replica.signal)}).{tail}"
    if replica.cause is Cause.EXIT_CODE and replica.exit_code is not None and said.startswith("The process ended"):
        return f"{replica.who} ended with exit code {replica.exit_code}.{tail}"
    return f"{replica.who} {_verb(replica.cause)}{f': {said}' if said else '.'}{tail}"


def is_culprit(replica: ReplicaFacts) -> bool:
    """Whether it is known to have failed by itself: of a gang that hung, only what the kernel's view of it tells."""
    return replica.cause is not Cause.HUNG or KERNELS_VIEW in replica.message


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
