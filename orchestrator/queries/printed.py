"""What a script said in printed lines and nowhere else: the numbers that could be drawn. Pages and REST call this."""

from orchestrator.models import Job, SeriesBlock
from orchestrator.queries.jobs import replicas
from orchestrator.queries.telemetry import log
from worker_agent.protocol.job.gang_shape import has_chief, is_leader
from worker_agent.protocol.job.printed import Found, candidates
from worker_agent.protocol.states import Kind

LOOKED_AT_BYTES = 256_000


def offered(job: Job) -> list[Found]:
    """The names with which the job's leader printed numbers, in the first part of its log; none where the job has told
    numbers otherwise."""
    if job.typed_spec.kind is not Kind.SCRIPT or SeriesBlock.objects.filter(replica__job=job).exists():
        return []
    with_chief = has_chief(job.typed_spec)
    leader = next((row for row in replicas(job) if is_leader(row.role, row.index, has_chief=with_chief)), None)
    return candidates(log(job, replica=str(leader), limit=LOOKED_AT_BYTES).text) if leader else []
