"""What holds a running job up, as lines of its history: one when it is found, one when it is over.

Ingest asks for it (`enqueue`) when processes of a job told parts of a step, which they do every ten seconds. What is
found is `domain/step_time.py`'s, which says nothing on noise; what was told already is read from the history.
"""

from datetime import datetime

from django.db import transaction

from orchestrator.domain.step_time import SETTLED, Finding, Holding, findings
from orchestrator.models import Job
from orchestrator.queries.measuring import step_parts
from orchestrator.services import transitions
from worker_agent.protocol.states import JobStatus

BEGAN = {
    Holding.STRAGGLER: "{who} is {times:.1f} × slower than the others.",
    Holding.INPUT: "The training waits for its input, {share:.0f} % of each step.",
}
OVER = {
    Holding.STRAGGLER: "{who} is as fast as the others again.",
    Holding.INPUT: "The training no longer waits for its input.",
}
# The kinds of their events.
_KIND = {holding: f"slowed_by_{holding}" for holding in BEGAN}
_KIND_OVER = {holding: f"{kind}_over" for holding, kind in _KIND.items()}
# What comes and goes all day shall not bury the rest of the history.
MOST_TOLD = 20

Slow = tuple[Holding, str]  # and the replica that it is told of, "" for all of them


def tell(*, job_id: int, now: datetime) -> None:
    """Write down what began to hold the job up in its present attempt, and what is over."""
    with transaction.atomic():
        job = Job.objects.select_for_update().filter(pk=job_id, status=JobStatus.RUNNING.value).first()
        if job is None:
            return
        samples = step_parts.of_job(job, now=now)
        found = {(each.holding, each.replica): each for each in findings(samples)}
        told, lines = _told(job)
        if len(samples) < SETTLED or lines >= MOST_TOLD:
            return
        for slow in sorted(told - found.keys()):
            _record(job, slow, Finding(slow[0], 0.0, slow[1]), is_over=True)
        for slow, finding in found.items():
            if slow[0] in BEGAN and slow not in told:
                _record(job, slow, finding, is_over=False)


def _told(job: Job) -> tuple[set[Slow], int]:
    """What the history says of the present attempt that is not over, and in how many lines it speaks of such."""
    begins = {kind: holding for holding, kind in _KIND.items()}
    ends = {kind: holding for holding, kind in _KIND_OVER.items()}
    told: set[Slow] = set()
    events = job.events.filter(attempt=job.attempt, kind__in=[*begins, *ends]).select_related("replica").order_by("pk")
    for event in events:
        who = str(event.replica) if event.replica else ""
        if event.kind in begins:
            told.add((begins[event.kind], who))
        else:
            told.discard((ends[event.kind], who))
    return told, len(events)


def _record(job: Job, slow: Slow, finding: Finding, *, is_over: bool) -> None:
    holding, name = slow
    gang = job.replicas.filter(attempt=job.attempt, superseded=False)
    replica = next((each for each in gang if str(each) == name), None) if name else None
    who = f"{replica.words.capitalize()} ({replica.node_name})" if replica else ""
    text = (OVER if is_over else BEGAN)[holding].format(who=who, times=finding.times, share=100 * finding.share)
    kind = (_KIND_OVER if is_over else _KIND)[holding]
    transitions.record(kind=kind, text=text, job=job, replica=replica)
