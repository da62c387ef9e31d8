"""The table of causes: one row says what an end of a process is called, who is to blame, and what becomes of the job.

The rules of a gang (`orchestrator/domain/gang`), pages, REST and docs/reliability.md read it. A cause has a further row
for each blame that changes what follows from it.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from worker_agent.protocol.states import Cause, JobStatus, Kind


class Blame(StrEnum):
    """Who made a process end. PEER: another process of its gang; PLATFORM: Trainyard, or the line to it."""

    NOBODY = ""
    PROGRAM = "program"
    MACHINE = "machine"
    PEER = "peer"
    PERSON = "person"
    PLATFORM = "platform"


class Retry(StrEnum):
    """Whether the job is launched again, in words. Only COUNTED counts against its `max_restarts`; UNLIMITED aside, all
    of them have a limit (`orchestrator/domain/gang/restarts.py`)."""

    NEVER = "never"
    COUNTED = "after 10 s, 20 s, 40 s … up to 5 minutes"
    LIMITED = "at once"
    UNLIMITED = "at once, without a limit"
    ONCE = "at once, once per job"
    IF_FURTHER = "at once; a second time only after progress"


@dataclass(frozen=True)
class Row:
    """One cause. `verb` follows a process's name ("worker 1 on node-2 failed"), `title` is what happened, `remedy` what
    to do. `status` is what the job comes to where it is not launched again.

    `may_follow`: the end of another process may explain it, and is waited for. `replaceable`: another process can take
    this one's place. `is_final`: the attempt ends of this whatever its processes fail of then. `node_leaves`: the
    node is probably about to go.
    """

    cause: Cause
    blame: Blame
    retry: Retry
    verb: str
    title: str
    remedy: str = ""
    status: JobStatus = JobStatus.FAILED
    may_follow: bool = False
    replaceable: bool = False
    is_final: bool = False
    node_leaves: bool = False


_MEET = "Check that the nodes can reach each other at their addresses and ports. Then run the job again."
_LOST_A_PEER = Row(
    *(Cause.EXCEPTION, Blame.PEER, Retry.IF_FURTHER, "failed", "The processes lost contact with each other", _MEET),
    replaceable=True,
)

CAUSES = (
    Row(
        *(Cause.COMPLETED, Blame.NOBODY, Retry.NEVER, "completed", "Training finished"),
        status=JobStatus.SUCCEEDED,
        is_final=True,
    ),
    Row(
        *(Cause.STOPPED, Blame.PERSON, Retry.NEVER, "was stopped", "A person stopped the job"),
        status=JobStatus.STOPPED,
        may_follow=True,
        is_final=True,
    ),
    Row(
        *(Cause.PAUSED, Blame.PERSON, Retry.NEVER, "was paused", "The job was asked to save and leave"),
        "Resume it. It continues from the checkpoint that it saved.",
        status=JobStatus.PAUSED,
        is_final=True,
    ),
    Row(
        *(Cause.PREEMPTED, Blame.PERSON, Retry.LIMITED, "got a SIGTERM from outside"),
        "A process got a SIGTERM that Trainyard did not send",
        "A person sent it, or the machine was shut down or reclaimed. Check the node, then run the job again.",
        replaceable=True,
        node_leaves=True,
    ),
    Row(
        *(Cause.EXCEPTION, Blame.PROGRAM, Retry.COUNTED, "failed", "The program raised an exception"),
        "Read the traceback in the log and correct the program. Then edit the job and start it again.",
        replaceable=True,
    ),
    _LOST_A_PEER,
    Row(
        *(Cause.EXIT_CODE, Blame.PROGRAM, Retry.COUNTED, "ended early", "A process exited with a code other than 0"),
        "The log shows what the process did last. Correct the program or its settings, and start the job again.",
        replaceable=True,
    ),
    Row(
        *(Cause.SIGNAL, Blame.PROGRAM, Retry.COUNTED, "was killed", "A signal ended a process"),
        "The log shows what the process did last. Correct the program or what it imports, and start the job again.",
        replaceable=True,
    ),
    # A SIGTERM asks, and counts as a person's wish; a SIGKILL asks nobody, and counts against the node.
    Row(
        *(Cause.SIGNAL, Blame.MACHINE, Retry.LIMITED, "was killed"),
        "A process got a SIGKILL that Trainyard did not send",
        "A person, the kernel or another program sent it. Check the node, then run the job again.",
        replaceable=True,
    ),
    replace(_LOST_A_PEER, cause=Cause.SIGNAL, verb="was killed"),
    Row(
        *(Cause.OUT_OF_MEMORY, Blame.PROGRAM, Retry.COUNTED, "ran out of memory", "A process ran out of memory"),
        "Use a smaller global batch size, a smaller model or more devices.",
        replaceable=True,
    ),
    Row(
        *(Cause.LOSS_NOT_FINITE, Blame.PROGRAM, Retry.NEVER, "stopped because the loss became NaN or infinite"),
        "The loss became NaN or infinite",
        "Lower the learning rate or lengthen its warm-up, and look for bad values in the data.",
    ),
    Row(
        *(Cause.RENDEZVOUS_TIMEOUT, Blame.PEER, Retry.IF_FURTHER, "could not connect to the rest of its gang"),
        *("The processes did not connect to each other in time", _MEET),
        may_follow=True,
    ),
    Row(
        *(Cause.PORT_TAKEN, Blame.MACHINE, Retry.LIMITED, "found its port in use", "Another program used the port"),
        "Another program uses ports of the cluster. Give the cluster another port range.",
    ),
    Row(
        *(Cause.LAUNCH_REFUSED, Blame.PLATFORM, Retry.NEVER, "was not launched"),
        "The launch was refused, or the job's TPU did not answer",
        "Correct what the reason names, then edit the job and start it again.",
    ),
    Row(
        *(Cause.TIME_LIMIT, Blame.PERSON, Retry.NEVER, "reached the time limit", "The time limit was reached"),
        "Edit the job, with a longer time limit or fewer epochs, and start it again.",
        is_final=True,
    ),
    Row(
        *(Cause.AGENT_SHUTDOWN, Blame.PERSON, Retry.UNLIMITED, "was ended because the agent of its node was shut down"),
        "The agent of a node was shut down",
        "Start the agent on that node, then run the job again.",
        node_leaves=True,
    ),
    Row(
        *(Cause.NODE_LOST, Blame.MACHINE, Retry.LIMITED, "was lost"),
        "A node was lost, no longer knew the process, or did not accept the launch within 60 s",
        "Check the power and network of the machine. You can run the job again on the other nodes.",
    ),
    Row(
        *(Cause.LEASE_LOST, Blame.PLATFORM, Retry.LIMITED, "was ended because its node was cut off"),
        "A node could not reach the control plane for longer than the lease",
        "Check Redis and the network between that node and the control plane. Then run the job again.",
    ),
    Row(
        *(Cause.HUNG, Blame.MACHINE, Retry.ONCE, "was ended because its gang hung"),
        "A process took no step for far longer than usual",
        "The files stacks-….txt show what each process was doing. Find the one that does not wait for another "
        "process, and correct what blocks it. Then run the job again.",
    ),
)
NODE_LEAVES = tuple(row.cause for row in CAUSES if row.node_leaves)

MISSING_MODULE = {
    Kind.SCRIPT: "Add {package} to Packages. If {module} is a file of yours, put it into a .zip with the program.",
    Kind.RECIPE: "Install {package} on the nodes, or run the program as a script, which may name it in Packages. If "
    "{module} is a file of yours, put it into a .zip with the program.",
}
"""What to do where a program imports a module that its node does not have, by the kind of program."""

_FIRST = {row.cause: row for row in reversed(CAUSES)}
_ROWS = {(row.cause, row.blame): row for row in CAUSES}


def row_of(cause: Cause, blame: Blame = Blame.NOBODY) -> Row:
    """The row of a cause with that blame; the first row of the cause where it has none."""
    return _ROWS.get((cause, blame), _FIRST[cause])
