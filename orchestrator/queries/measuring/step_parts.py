"""Where the time of a job's steps went, as its processes measured it."""

import math
from collections import defaultdict
from datetime import datetime

from django.utils import timezone

from orchestrator import series as storage
from orchestrator.domain.step_time import Parts
from orchestrator.models import Job
from worker_agent.protocol.records import StepPart

# A process measures every ten seconds; what was long ago says nothing of now.
LATELY_S = 600.0
_PARTS = {part.series: part for part in StepPart}


def of_job(job: Job, *, now: datetime | None = None) -> list[dict[str, Parts]]:
    """The samples of the last ten minutes of the latest attempt, the oldest first: by replica, parts in ms a step."""
    names = {replica.pk: str(replica) for replica in job.replicas.filter(attempt=job.attempt)}
    since = (job.ended_at or now or timezone.now()).timestamp() - LATELY_S
    curves = storage.read([storage.Owner(replica_id=pk) for pk in names], names=_PARTS, since=since) if names else {}
    found: defaultdict[int, defaultdict[str, dict[StepPart, float]]] = defaultdict(lambda: defaultdict(dict))
    for (owner, series), curve in curves.items():
        for step, value in zip(curve.steps.tolist(), curve.values.tolist(), strict=True):
            if 0 <= value < math.inf:  # a program may log anything under these names
                found[step][names[owner.replica_id or 0]][_PARTS[series]] = value
    return [dict(found[step]) for step in sorted(found)]
