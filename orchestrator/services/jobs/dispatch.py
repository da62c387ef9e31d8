"""Placing submitted jobs: load the cluster, plan (pure), apply under guard in one transaction; commands go on commit.

Called by Celery the moment a job is submitted or something became free, and by the sweep. Whoever comes second finds
the job moved on, or the cluster's row locked until the first has applied its plan.
"""

import logging
from datetime import datetime

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F

from orchestrator import live
from orchestrator.domain.placement import planning
from orchestrator.domain.placement.planning import Placed, PlannedReplica
from orchestrator.models import Attempt, Checkpoint, Cluster, Job, Node, Replica
from orchestrator.services import fencing
from orchestrator.services.checkpoints import checkpoint_registry
from orchestrator.services.checkpoints.checkpoint_registry import NotThere
from orchestrator.services.gang import figures
from orchestrator.services.gang.launching import launch
from orchestrator.services.jobs.queue import Queue, why_not
from orchestrator.services.nodes.cluster_snapshot import cluster_view
from orchestrator.services.transitions import announce_job, announce_replicas, move_job, record
from orchestrator.services.trials import rehearsals
from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.protocol.states import Cause, JobStatus, Role

logger = logging.getLogger(__name__)

# Ports are unique in the database: a plan that lost a race for one is made again.
PLACING_TRIES = 3
# Jobs in a row start this many ports apart, so that a port just given back rests before it is used again.
PORT_STRIDE = 17
# So many jobs learn in one transaction what they wait for: others write in between.
NOTED_AT_ONCE = 100


def dispatch_job(*, job_id: int, now: datetime) -> bool:
    """Launch the job if its whole gang has room now; otherwise note what it waits for. True when launched."""
    for _ in range(PLACING_TRIES):
        try:
            with live.gathered(), transaction.atomic():
                return _dispatch(job_id, now)
        except IntegrityError:
            logger.info("job %s lost a race for a port and is planned again", job_id)
    return False


def dispatch_waiting(*, now: datetime) -> int:
    """Launch what fits, by priority, then by age; smaller jobs may pass one that does not fit yet. How many were
    launched.

    1. Read the queue and the clusters once. 2. Try, each under guard, the jobs that have room there and wait for
    nothing else; a shape that had no room is not looked at again. 3. Note what the others wait for, where that is new.
    """
    queue = Queue(now)
    launched = queue.launch_what_fits(lambda job_id: dispatch_job(job_id=job_id, now=now))
    for reason, job_ids in queue.news().items():
        for first in range(0, len(job_ids), NOTED_AT_ONCE):
            _note(job_ids[first : first + NOTED_AT_ONCE], reason)
    return launched


def _dispatch(job_id: int, now: datetime) -> bool:
    waiting = Job.objects.filter(pk=job_id, status=JobStatus.SUBMITTED.value).select_related("owner")
    job = waiting.select_for_update(of=("self",)).first()
    if job is None or (job.not_before is not None and now < job.not_before):
        return False
    # Two gangs of one cluster are placed one after the other: devices have no constraint in the database.
    job.cluster = cluster = Cluster.objects.select_for_update().get(pk=job.cluster_id)
    spec = job.typed_spec
    # A port that was taken once is not tried again by this job; a hand-written TF_CONFIG leaves no others to go to.
    replicas = job.replicas.all() if job.attempt and not spec.tf_config else job.replicas.none()
    tried = frozenset(replicas.values_list("host", "port"))
    view = cluster_view(cluster, ports_avoided=tried, now=now)
    outcome = planning.place(spec, view, port_offset=(job.pk + job.attempt) * PORT_STRIDE)
    begin = checkpoint_registry.to_begin_with(job, spec, now=now)
    rehearsed = rehearsals.rehearse(job=job, spec=spec, cluster=cluster, view=view, now=now)
    if rehearsed.refused:
        why, cause = rehearsed.refused, Cause.LAUNCH_REFUSED.value
        text = f"Nothing was started. {why}"
        move_job(job=job, to=JobStatus.FAILED, now=now, text=text, cause=cause, reason=why, waiting_for="")
        return False
    gone = begin.message if isinstance(begin, NotThere) and isinstance(outcome, Placed) else ""
    fenced = fencing.waits_for(job) if job.attempt else ""
    reason = fenced or gone or why_not(spec, view, outcome) or rehearsed.waits_for
    if not isinstance(outcome, Placed) or isinstance(begin, NotThere) or reason:
        if job.waiting_for != reason:
            _note([job.pk], reason)
        return False
    for warning in rehearsed.warnings:
        record(kind="preflight", text=f"Found before it started: {warning}.", job=job)
    _apply(job, spec, cluster, outcome.replicas, begin, now)
    return True


def _note(job_ids: list[int], reason: str) -> None:
    """Say what these jobs wait for, as one message. Who is being moved at this moment has other news."""
    with live.gathered(), transaction.atomic():
        rows = Job.objects.filter(pk__in=job_ids, status=JobStatus.SUBMITTED.value)
        seen = list(rows.select_for_update(skip_locked=True).order_by("pk").values_list("pk", flat=True))
        changed = {"waiting_for": reason, "not_before": None, "revision": F("revision") + 1}
        Job.objects.filter(pk__in=seen).update(**changed)
        for job in Job.objects.filter(pk__in=seen).select_related("owner", "cluster").order_by("pk"):
            announce_job(job)


def _apply(
    job: Job,
    spec: JobSpec,
    cluster: Cluster,
    planned: tuple[PlannedReplica, ...],
    begin: Checkpoint | None,
    now: datetime,
) -> None:
    number = job.attempt + 1
    places = sorted({replica.node_name for replica in planned})
    text = f"Attempt {number}: {len(planned)} {'process' if len(planned) == 1 else 'processes'} on {', '.join(places)}."
    if begin is not None:
        whose = "" if begin.job_id == job.pk else f" of j-{begin.job_id}"
        text += f" It continues from the checkpoint at step {begin.step}{whose}."
    # Another job's step and metrics are not this one's before it has taken them up.
    own = begin if begin is not None and begin.job_id == job.pk else None
    if job.attempt:  # what arrived of the attempt before after its end counts for it as well
        Attempt.objects.filter(job=job, number=job.attempt).update(step_reached=job.step)
    move_job(
        job=job,
        to=JobStatus.LAUNCHING,
        now=now,
        text=text,
        attempt=number,
        waiting_for="",
        not_before=None,
        cause="",
        reason="",
        step=own.step if own else 0,
        epoch=own.epoch if own else 0,
        metrics=own.metrics if own else {},
    )
    if number > 1:
        figures.renew(job)
    attempt = Attempt.objects.create(
        job=job,
        number=number,
        started_at=now,
        checkpoint_place=checkpoint_registry.place_of(job, cluster.checkpoint_place),
        resumed_from=begin,
        resumed_step=begin.step if begin else None,
    )
    nodes = Node.objects.in_bulk({place.node_id for place in planned})
    gang = []
    # Worker 0 of a gang and the coordinator go first: the others wait for their port.
    for place in sorted(planned, key=lambda replica: (replica.role is not Role.CHIEF, replica.index)):
        row = Replica.objects.create(job=job, attempt=number, lease_s=settings.LEASE_S, **vars(place))
        row.node = nodes[place.node_id]
        launch(row, spec, attempt=attempt, begin=begin, now=now)
        gang.append(row)
    announce_replicas(gang)
