"""The table of causes: one row says what an end of a process is called, who is to blame, and what becomes of the job.

The rules of a gang (`orchestrator/domain/gang`), pages, REST and docs/reliability.md read it. A cause has a further row
for each blame that changes what follows from it.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from worker_agent.protocol.states import Cause, JobStatus


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
    UNLIMITED = "however often"
    ONCE = "at once, once per job"
    IF_FURTHER = "at once; a second time only if the job has come further since"


@dataclass(frozen=True)
class Row:
    """One cause. `verb` follows a process's name ("worker 1 on node-2 failed"), `title` is the heading of a job that
    failed of it, `again` says more of the `retry`. `status` is what the job comes to where it is not launched again.

    `is_final`: whatever its processes fail of then, the attempt has ended of this. `may_follow`: the end of another
    process may explain it, and is waited for. `spares_the_place`: another process can take this one's place.
    `node_leaves`: its node is about to go, as far as can be known.
    """

    cause: Cause
    blame: Blame
    retry: Retry
    verb: str
    meaning: str
    title: str = ""
    remedy: str = ""
    again: str = ""
    status: JobStatus = JobStatus.FAILED
    is_final: bool = False
    may_follow: bool = False
    spares_the_place: bool = False
    node_leaves: bool = False


_LOST_A_PEER = Row(
    *(Cause.EXCEPTION, Blame.PEER, Retry.IF_FURTHER, "failed"),
    "it lost another process of its gang, and none failed by itself",
    "The processes lost one another",
    "Check that its nodes reach each other at their addresses and ports, then run it again.",
    spares_the_place=True,
)
_KILLED = Row(
    *(Cause.SIGNAL, Blame.MACHINE, Retry.LIMITED, "was killed"),
    "a SIGKILL that Trainyard did not send and that was not for memory, also of the parent that watched over it",
    "A process was killed",
    "Trainyard did not send this signal: a person, the kernel or another program did. Look at the node, "
    "then run it again.",
    spares_the_place=True,
)

CAUSES = (
    Row(
        *(Cause.COMPLETED, Blame.NOBODY, Retry.NEVER, "completed"),
        "training reached its end",
        status=JobStatus.SUCCEEDED,
        is_final=True,
    ),
    Row(
        *(Cause.STOPPED, Blame.PERSON, Retry.NEVER, "was stopped"),
        "a person stopped it",
        status=JobStatus.STOPPED,
        is_final=True,
        may_follow=True,
    ),
    Row(
        *(Cause.PAUSED, Blame.PERSON, Retry.NEVER, "was paused"),
        "it was asked to save and leave",
        "The job was paused",
        "Resume it: it goes on from the checkpoint that it saved.",
        again="when a person or the queue resumes it",
        status=JobStatus.PAUSED,
    ),
    Row(
        *(Cause.PREEMPTED, Blame.PERSON, Retry.LIMITED, "was asked from outside to leave"),
        "a SIGTERM that Trainyard did not send asked it to leave",
        "A process was asked from outside to leave",
        "Trainyard did not send this SIGTERM: a person or a machine that was shut down or taken back did. "
        "Look at the node, then run it again.",
        again="at once, mostly without losing a step",
        spares_the_place=True,
        node_leaves=True,
    ),
    Row(
        *(Cause.EXCEPTION, Blame.PROGRAM, Retry.COUNTED, "failed"),
        "the program raised; the reason has the exception's type and words, and the deepest line of the program's own",
        "The program raised an exception",
        "Read the traceback in the log, change the program, then start one like this.",
        spares_the_place=True,
    ),
    _LOST_A_PEER,
    Row(
        *(Cause.EXIT_CODE, Blame.PROGRAM, Retry.COUNTED, "ended early"),
        "it left with a status other than 0; the reason has the last lines of its output",
        "A process ended early",
        "The log says what the process did last. Change the program or its settings, then run it again.",
        spares_the_place=True,
    ),
    replace(
        _KILLED,
        blame=Blame.PROGRAM,
        retry=Retry.COUNTED,
        meaning="a signal other than SIGKILL ended it; the reason has the last lines of its output",
    ),
    _KILLED,
    replace(
        _LOST_A_PEER,
        cause=Cause.SIGNAL,
        verb="was killed",
        meaning="TensorFlow aborted it because it had lost another process, and none failed by itself",
    ),
    Row(
        *(Cause.OUT_OF_MEMORY, Blame.PROGRAM, Retry.COUNTED, "ran out of memory"),
        "the kernel ended it for memory, or it raised `MemoryError`, or TensorFlow could not allocate",
        "A process ran out of memory",
        "Use a smaller global batch size or model, or spread the job over more devices.",
        spares_the_place=True,
    ),
    Row(
        *(Cause.LOSS_NOT_FINITE, Blame.PROGRAM, Retry.NEVER, "stopped because the loss is no longer a finite number"),
        "the loss became NaN or infinite",
        "The loss is no longer a finite number",
        "Lower the learning rate or lengthen its warm-up; look for bad values in the data.",
    ),
    Row(
        *(Cause.RENDEZVOUS_TIMEOUT, Blame.PEER, Retry.IF_FURTHER, "waited in vain for the rest of its gang"),
        "the gang did not meet in time; the reason names the processes that never came",
        "The processes did not find each other in time",
        "Check that the nodes reach each other at their addresses and ports, then run it again.",
        may_follow=True,
    ),
    Row(
        *(Cause.PORT_TAKEN, Blame.MACHINE, Retry.LIMITED, "found its port taken"),
        "somebody else had its port; the reason says who, where the agent may see it",
        "A port was taken",
        "Another program uses the ports of the cluster. Give the cluster a different port range.",
        again="at once, on other ports",
    ),
    Row(
        *(Cause.LAUNCH_REFUSED, Blame.PLATFORM, Retry.NEVER, "was not launched"),
        "the agent could not or would not start it, or the job's TPU did not answer",
        "Its launch was refused",
        "Change what the reason names, then start one like this.",
    ),
    Row(
        *(Cause.TIME_LIMIT, Blame.PERSON, Retry.NEVER, "reached the time limit"),
        "the job's time limit was over",
        "The time limit was reached",
        "Give it a longer time limit or fewer epochs: start one like this.",
        is_final=True,
    ),
    Row(
        *(Cause.AGENT_SHUTDOWN, Blame.PERSON, Retry.UNLIMITED),
        "was ended because the agent of its node shut down",
        "the agent was told to end and took its processes along",
        "The agent of a node was shut down",
        "Start the agent again on its node, then run the job again.",
        again="when there is room, however often",
        node_leaves=True,
    ),
    Row(
        *(Cause.NODE_LOST, Blame.MACHINE, Retry.LIMITED, "was lost"),
        "the agent fell silent, no longer knows the process, or did not take its launch within 60 s",
        "A node was lost",
        "Look at the power and network of the machine. The job can run again on the nodes that are left.",
        again="on the nodes that are there, when the old processes have ended for sure",
    ),
    Row(
        *(Cause.LEASE_LOST, Blame.PLATFORM, Retry.LIMITED, "was ended by its node, which had been out of touch"),
        "the node was out of touch for longer than its lease, and ended the process itself",
        "A node was out of touch for too long",
        "Look at the network between that node and the control plane, and at Redis, then run it again.",
    ),
    Row(
        *(Cause.HUNG, Blame.MACHINE, Retry.ONCE, "was ended because its gang hung"),
        "a process made no step for many times its usual time",
        "A process hung",
        "The files stacks-….txt say where each process stood: look for the one that does not wait for others, "
        "mend what keeps it, then run it again.",
    ),
)
NODE_LEAVES = tuple(row.cause for row in CAUSES if row.node_leaves)

_FIRST = {row.cause: row for row in reversed(CAUSES)}
_ROWS = {(row.cause, row.blame): row for row in CAUSES}


def row_of(cause: Cause, blame: Blame = Blame.NOBODY) -> Row:
    """The row of a cause with that blame; the first row of the cause where it has none."""
    return _ROWS.get((cause, blame), _FIRST[cause])
