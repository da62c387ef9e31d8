"""Jobs and replicas as pages say them: one row of a list, what a gang takes, why one ended and what to do about it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from dashboard.templatetags.trainyard import duration
from orchestrator.domain.gang.reasons import LAST_LINES, lost_a_peer, saved_and_left
from orchestrator.domain.gang.restarts import Blame
from orchestrator.domain.lifecycle import TERMINAL_JOB
from orchestrator.queries.jobs import began_at, progress_of, remaining_s
from orchestrator.queries.rows import Job, Replica, User
from worker_agent.protocol.states import Cause, JobStatus, ReplicaStatus, Strategy

HEADLINE_CHARS = 200
TONE_OF_PROGRESS = {
    "failed": "red",
    "stopped": "grey",
    "restarting": "violet",
    "stopping": "grey",
    "pausing": "amber",
    "paused": "amber",
    "succeeded": "green",
}
SAYS_WHY = frozenset(JobStatus) - {JobStatus.LAUNCHING, JobStatus.RUNNING, JobStatus.SUCCEEDED}
TITLES = {
    Cause.EXCEPTION: "The program raised an exception",
    Cause.EXIT_CODE: "A process ended early",
    Cause.SIGNAL: "A process was killed",
    Cause.OUT_OF_MEMORY: "A process ran out of memory",
    Cause.LOSS_NOT_FINITE: "The loss is no longer a finite number",
    Cause.RENDEZVOUS_TIMEOUT: "The processes did not find each other in time",
    Cause.PORT_TAKEN: "A port was taken",
    Cause.LAUNCH_REFUSED: "Its launch was refused",
    Cause.TIME_LIMIT: "The time limit was reached",
    Cause.AGENT_SHUTDOWN: "The agent of a node was shut down",
    Cause.NODE_LOST: "A node was lost",
    Cause.LEASE_LOST: "A node was out of touch for too long",
    Cause.HUNG: "A process hung",
    Cause.PAUSED: "The job was paused",
    Cause.PREEMPTED: "A process was asked from outside to leave",
}
REMEDIES = {
    Cause.EXCEPTION: "Read the traceback in the log, change the program, then start one like this.",
    Cause.EXIT_CODE: "The log says what the process did last. Change the program or its settings, then run it again.",
    Cause.SIGNAL: "Trainyard did not send this signal: a person, the kernel or another program did. Look at the node, "
    "then run it again.",
    Cause.OUT_OF_MEMORY: "Use a smaller global batch size or model, or spread the job over more devices.",
    Cause.LOSS_NOT_FINITE: "Lower the learning rate or lengthen its warm-up; look for bad values in the data.",
    Cause.RENDEZVOUS_TIMEOUT: "Check that the nodes reach each other at their addresses and ports, then run it again.",
    Cause.PORT_TAKEN: "Another program uses the ports of the cluster. Give the cluster a different port range.",
    Cause.LAUNCH_REFUSED: "Change what the reason names, then start one like this.",
    Cause.TIME_LIMIT: "Give it a longer time limit or fewer epochs: start one like this.",
    Cause.AGENT_SHUTDOWN: "Start the agent again on its node, then run the job again.",
    Cause.NODE_LOST: "Look at the power and network of the machine. The job can run again on the nodes that are left.",
    Cause.LEASE_LOST: "Look at the network between that node and the control plane, and at Redis, then run it again.",
    Cause.HUNG: "The files stacks-….txt say where each process stood: look for the one that does not wait for others, "
    "mend what keeps it, then run it again.",
    Cause.PREEMPTED: "Trainyard did not send this SIGTERM: a person or a machine that was shut down or taken back did. "
    "Look at the node, then run it again.",
    Cause.PAUSED: "Resume it: it goes on from the checkpoint that it saved.",
}
LOST_ONE_ANOTHER = "The processes lost one another"
LOOK_AT_THE_NETWORK = "Check that its nodes reach each other at their addresses and ports, then run it again."


@dataclass(frozen=True)
class JobRow:
    """A job in a list. `began` is when its first launch was at work, `started` that or when it was submitted."""

    job: Job
    percent: float | None
    tone: str
    remaining_s: float | None
    loss: object
    note: str
    devices: int
    began: datetime | None
    started: datetime
    lasted: str

    @classmethod
    def of(cls, job: Job, *, now: datetime | None = None) -> "JobRow":
        """From a job with owner and cluster at hand."""
        now = now or datetime.now(UTC)
        progress = progress_of(job)
        waiting = job.status == JobStatus.SUBMITTED
        began = began_at(job)
        since = job.created_at if waiting else began or job.created_at
        span = duration(((job.ended_at or now) - since).total_seconds())
        return cls(
            job=job,
            percent=None if progress is None else progress * 100,
            tone=TONE_OF_PROGRESS.get(job.status, "blue"),
            remaining_s=remaining_s(job, now=now),
            loss=job.metrics.get("loss"),
            note=note_of(job),
            devices=gang_of(job.spec)["devices"],
            began=began,
            started=since,
            lasted=f"waits {span}" if waiting else span,
        )


def note_of(job: Job) -> str:
    """What a list adds to a job that is not simply running or done: what it waits for, or why it ended."""
    if job.status == JobStatus.SUBMITTED:
        return job.waiting_for
    if job.status in SAYS_WHY:
        return headline(job.reason)
    return ""


def gang_of(spec: dict[str, Any]) -> dict[str, int]:
    """How many processes and devices a spec asks for."""
    workers = int(spec.get("workers", 1))
    beside = 1 + int(spec.get("ps", 0)) if spec.get("strategy") == Strategy.PARAMETER_SERVER else 0
    beside += spec.get("validation") == "evaluator"
    return {"processes": workers + beside, "devices": workers * int(spec.get("devices_per_worker", 1))}


def headline(reason: str) -> str:
    """The first line of a reason, without the lines of the log that follow it."""
    first = reason.partition(LAST_LINES)[0].strip().partition("\n")[0]
    return first if len(first) <= HEADLINE_CHARS else first[:HEADLINE_CHARS].rstrip() + "…"


def failure_of(job: Job, gang: Sequence[Replica], *, blame: str) -> dict[str, str] | None:
    """Why a failed (or restarting) job ended: what, the rest of it, the last lines of the log, and the remedy.

    `gang` are the processes of its latest attempt, `blame` whose fault that one's end was.
    """
    if job.status not in (JobStatus.FAILED, JobStatus.RESTARTING) or not (job.reason or job.cause):
        return None
    said, _, lines = job.reason.partition(LAST_LINES)
    said = said.strip()
    cause = Cause(job.cause) if job.cause in set(Cause) else None
    if cause and blame == Blame.MACHINES and _only_lost_peers(gang, cause):
        return {"title": LOST_ONE_ANOTHER, "text": said, "lines": lines.strip("\n"), "remedy": LOOK_AT_THE_NETWORK}
    title = headline(said) or TITLES.get(cause, "The job failed") if cause else headline(said)
    return {
        "title": title or "The job failed",
        "text": said if said != title else "",
        "lines": lines.strip("\n"),
        "remedy": REMEDIES.get(cause, "") if cause else "",
    }


def _only_lost_peers(gang: Sequence[Replica], cause: Cause) -> bool:
    """Whether nobody who ended of this cause had failed by itself."""
    ended = [replica for replica in gang if replica.cause == cause]
    return bool(ended) and all(lost_a_peer(cause, replica.signal, replica.reason) for replica in ended)


def may_change(job: Job, user: User) -> bool:
    """Whether the page offers this person to stop the job (the service decides)."""
    return bool(user.may_run_jobs and (job.owner_id == user.pk or user.may_administer))


def is_over(job: Job) -> bool:
    """The job will not move any more."""
    return JobStatus(job.status) in TERMINAL_JOB


def replica_state(replica: Replica) -> tuple[str, str]:
    """Shape and word for a replica: an ended one by how it ended."""
    if replica.status == ReplicaStatus.EXITED:
        if replica.cause == Cause.COMPLETED:
            return "succeeded", "Completed"
        if replica.cause in (Cause.STOPPED, ""):
            return "stopped", "Stopped"
        if replica.cause == Cause.PAUSED or saved_and_left(replica.cause, replica.exit_code):
            return "paused", "Paused"
        return "failed", "Failed"
    return replica.status, replica.status.capitalize()
