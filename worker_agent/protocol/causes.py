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
    UNLIMITED = "at once, however often"
    ONCE = "at once, once per job"
    IF_FURTHER = "at once; a second time only if the job has come further since"


@dataclass(frozen=True)
class Row:
    """One cause. `verb` follows a process's name ("worker 1 on node-2 failed"), `title` is what happened, `remedy` what
    to do. `status` is what the job comes to where it is not launched again.

    `may_follow`: the end of another process may explain it, and is waited for. `spares_the_place`: another process can
    take this one's place.
    """

    cause: Cause
    blame: Blame
    retry: Retry
    verb: str
    title: str
    remedy: str = ""
    status: JobStatus = JobStatus.FAILED
    may_follow: bool = False
    spares_the_place: bool = False

    @property
    def is_final(self) -> bool:
        """Whether the attempt ends of this whatever its processes fail of then: it was done, or a person's wish."""
        return self.retry is Retry.NEVER and self.blame in (Blame.NOBODY, Blame.PERSON)

    @property
    def node_leaves(self) -> bool:
        """Whether its node is about to go, as far as is known: somebody wants the process away, not the job ended."""
        return self.retry is not Retry.NEVER and self.blame is Blame.PERSON


_MEET = "Check that the nodes reach each other at their addresses and ports, then run it again."
_LOST_A_PEER = Row(
    *(Cause.EXCEPTION, Blame.PEER, Retry.IF_FURTHER, "failed", "The processes lost one another", _MEET),
    spares_the_place=True,
)

CAUSES = (
    Row(
        *(Cause.COMPLETED, Blame.NOBODY, Retry.NEVER, "completed", "Training reached its end"),
        status=JobStatus.SUCCEEDED,
    ),
    Row(
        *(Cause.STOPPED, Blame.PERSON, Retry.NEVER, "was stopped", "A person stopped it"),
        status=JobStatus.STOPPED,
        may_follow=True,
    ),
    Row(
        *(Cause.PAUSED, Blame.PERSON, Retry.NEVER, "was paused", "It was asked to save and leave"),
        "Resume it: it goes on from the checkpoint that it saved.",
        status=JobStatus.PAUSED,
    ),
    Row(
        *(Cause.PREEMPTED, Blame.PERSON, Retry.LIMITED, "was asked from outside to leave"),
        "A process got a SIGTERM that Trainyard did not send",
        "A person or a machine that was shut down or taken back sent it. Look at the node, then run it again.",
        spares_the_place=True,
    ),
    Row(
        *(Cause.EXCEPTION, Blame.PROGRAM, Retry.COUNTED, "failed", "The program raised an exception"),
        "Read the traceback in the log, change the program, then start one like this.",
        spares_the_place=True,
    ),
    _LOST_A_PEER,
    Row(
        *(Cause.EXIT_CODE, Blame.PROGRAM, Retry.COUNTED, "ended early", "A process left with a status other than 0"),
        "The log says what the process did last. Change the program or its settings, then run it again.",
        spares_the_place=True,
    ),
    Row(
        *(Cause.SIGNAL, Blame.PROGRAM, Retry.COUNTED, "was killed", "A process was ended by a signal"),
        "The log says what the process did last. Change the program or what it imports, then run it again.",
        spares_the_place=True,
    ),
    Row(
        *(
            Cause.SIGNAL,
            Blame.MACHINE,
            Retry.LIMITED,
            "was killed",
            "A process got a SIGKILL that Trainyard did not send",
        ),
        "A person, the kernel or another program sent it. Look at the node, then run it again.",
        spares_the_place=True,
    ),
    replace(_LOST_A_PEER, cause=Cause.SIGNAL, verb="was killed"),
    Row(
        *(Cause.OUT_OF_MEMORY, Blame.PROGRAM, Retry.COUNTED, "ran out of memory", "A process ran out of memory"),
        "Use a smaller global batch size or model, or spread the job over more devices.",
        spares_the_place=True,
    ),
    Row(
        *(Cause.LOSS_NOT_FINITE, Blame.PROGRAM, Retry.NEVER, "stopped because the loss is no longer a finite number"),
        "The loss became NaN or infinite",
        "Lower the learning rate or lengthen its warm-up; look for bad values in the data.",
    ),
    Row(
        *(Cause.RENDEZVOUS_TIMEOUT, Blame.PEER, Retry.IF_FURTHER, "waited in vain for the rest of its gang"),
        *("The processes did not find each other in time", _MEET),
        may_follow=True,
    ),
    Row(
        *(Cause.PORT_TAKEN, Blame.MACHINE, Retry.LIMITED, "found its port taken", "Another program had the port"),
        "Another program uses the ports of the cluster. Give the cluster a different port range.",
    ),
    Row(
        *(Cause.LAUNCH_REFUSED, Blame.PLATFORM, Retry.NEVER, "was not launched"),
        "The launch was refused, or the job's TPU did not answer",
        "Change what the reason names, then start one like this.",
    ),
    Row(
        *(Cause.TIME_LIMIT, Blame.PERSON, Retry.NEVER, "reached the time limit", "The time limit was reached"),
        "Give it a longer time limit or fewer epochs: start one like this.",
    ),
    Row(
        *(Cause.AGENT_SHUTDOWN, Blame.PERSON, Retry.UNLIMITED, "was ended because the agent of its node shut down"),
        "The agent of a node was shut down",
        "Start the agent again on its node, then run the job again.",
    ),
    Row(
        *(Cause.NODE_LOST, Blame.MACHINE, Retry.LIMITED, "was lost"),
        "A node was lost, no longer knows the process, or did not take its launch within 60 s",
        "Look at the power and network of the machine. The job can run again on the nodes that are left.",
    ),
    Row(
        *(Cause.LEASE_LOST, Blame.PLATFORM, Retry.LIMITED, "was ended by its node, which had been out of touch"),
        "A node was out of touch for longer than the lease",
        "Look at the network between that node and the control plane, and at Redis, then run it again.",
    ),
    Row(
        *(Cause.HUNG, Blame.MACHINE, Retry.ONCE, "was ended because its gang hung"),
        "A process made no step for many times its usual time",
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
