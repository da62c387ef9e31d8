"""The folders that ended replicas have on their nodes: an agent is told to forget one when nothing of it is missed.

The sweep calls `forget_stored`, deleting a job `forget_deleted`.
"""

from datetime import datetime, timedelta

from django.db.models import Exists, F, OuterRef, Q

from orchestrator.domain.lifecycle import TERMINAL_REPLICA
from orchestrator.models import Checkpoint, Command, Cursor, Job, Replica
from orchestrator.services import outbox
from worker_agent.protocol.commands import Forget
from worker_agent.protocol.states import JobStatus

# Artifacts follow the end of a replica; its folder stays at least this long.
FORGET_AFTER = timedelta(seconds=60)
FORGET_LIMIT = 200


def forget_stored(*, now: datetime) -> None:
    """Ended replicas of which everything has arrived: their folders on the nodes may go."""
    missing = Cursor.objects.filter(replica=OuterRef("pk")).filter(Q(final=None) | Q(offset__lt=F("final")))
    told = Command.objects.filter(replica=OuterRef("pk"), kind="forget")
    coming = Checkpoint.objects.filter(job=OuterRef("job"), attempt=OuterRef("attempt"), usable=False)
    done = (
        Replica.objects.filter(status__in=TERMINAL_REPLICA, ended_at__lt=now - FORGET_AFTER, node__isnull=False)
        .filter(Exists(Cursor.objects.filter(replica=OuterRef("pk"))))
        .exclude(Exists(missing))
        .exclude(Exists(told))
        .exclude(Exists(coming.filter(job__status__in=(JobStatus.PAUSED.value, JobStatus.SUBMITTED.value))))
        .select_related("node")
    )
    for replica in done.order_by("pk")[:FORGET_LIMIT]:
        if replica.node is not None:
            outbox.post(_forget(replica), node=replica.node, replica=replica, now=now)


def forget_deleted(job: Job, *, now: datetime) -> None:
    """Before the rows of an ended job go: its folders on the nodes are to go too. These commands outlive the rows; an
    agent answers one when its replica has ended and nothing of it is left to deliver."""
    gone = Command.objects.filter(replica=OuterRef("pk"), kind="forget").exclude(acked_at=None)
    left = job.replicas.filter(node__isnull=False).exclude(Exists(gone)).select_related("node")
    for replica in left.order_by("pk"):
        if replica.node is not None:
            outbox.post(_forget(replica), node=replica.node, now=now)


def _forget(replica: Replica) -> Forget:
    return Forget(command_id=outbox.NEW, replica_id=replica.pk, attempt=replica.attempt)
