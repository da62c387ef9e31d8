"""Emptying a node: steps of the sweep. Jobs that can save are paused and go back into the queue, to go on elsewhere;
the others are left to finish. The node is empty when nothing runs there and nothing is to be fetched from it.
"""

from datetime import datetime

from django.db import transaction
from django.db.models import F

from orchestrator.models import Checkpoint, Job, Node, Replica
from orchestrator.services.checkpoints import checkpoint_registry
from orchestrator.services.gang import pausing
from orchestrator.services.transitions import move_node
from worker_agent.protocol.job.job_spec import keeps_checkpoints
from worker_agent.protocol.states import JobStatus, NodeState


def pause_jobs(*, now: datetime) -> None:
    """Jobs at work on a draining node save and leave it."""
    running = Replica.objects.live().filter(
        node__state=NodeState.DRAINING.value, job__status=JobStatus.RUNNING.value, attempt=F("job__attempt")
    )
    for job_id, name in dict(running.values_list("job_id", "node_name")).items():
        with transaction.atomic():
            job = Job.objects.select_for_update().get(pk=job_id)
            if job.status == JobStatus.RUNNING and keeps_checkpoints(job.typed_spec):
                pausing.begin(job=job, reason=f"Paused because {name} is drained.", requeue=True, now=now)


def cordon_drained_nodes(*, now: datetime) -> None:
    """A draining node on which nothing is left is drained: cordoned until somebody takes it into use again."""
    for node in Node.objects.filter(state=NodeState.DRAINING.value).exclude(replicas__held=True):
        if _is_owing(node):
            continue
        reason = f"Drained. {node.state_reason}".strip()
        text = f"{node.name} is drained: nothing runs there any more."
        move_node(node=node, to=NodeState.CORDONED, now=now, reason=reason, text=text)


def _is_owing(node: Node) -> bool:
    """Whether a checkpoint that a waiting job is to begin with is still on its way from this node."""
    waiting = Job.objects.filter(status__in=(JobStatus.SUBMITTED.value, JobStatus.PAUSED.value), replicas__node=node)
    coming = Checkpoint.objects.filter(job__in=waiting, usable=False, attempt=F("job__attempt"))
    return any(checkpoint_registry.writer_node(row) == node for row in coming)
