"""The folders that ended replicas have on their nodes: an agent is told to forget one when nothing of it is missed.

The sweep calls `forget_stored`, deleting a job `forget_deleted`.
"""

from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q

from orchestrator.models import Checkpoint, Command, Cursor, Job, Replica
from orchestrator.services import outbox
from worker_agent.protocol.commands import Forget
from worker_agent.protocol.states import JobStatus

# Artifacts follow the end of a replica; its folder stays at least this long.
FORGET_AFTER = timedelta(seconds=60)
# So many replicas are looked at in each sweep, in turn: of some, what is missing never comes.
LOOKED_AT = 200


class _Turn:
    """Behind which replica the next look begins: in memory, because it does not matter where."""

    behind = 0


def forget_stored(*, now: datetime) -> None:
    """Ended replicas of which everything has arrived: their folders on the nodes may go."""
    kept = Replica.objects.filter(forget_sent_at=None, ended_at__lt=now - FORGET_AFTER, node__isnull=False)
    turn = list(kept.filter(pk__gt=_Turn.behind).order_by("pk").values_list("pk", flat=True)[:LOOKED_AT])
    _Turn.behind = turn[-1] if len(turn) == LOOKED_AT else 0
    missing = Cursor.objects.filter(replica=OuterRef("pk")).filter(Q(final=None) | Q(offset__lt=F("final")))
    coming = Checkpoint.objects.filter(job=OuterRef("job"), attempt=OuterRef("attempt"), usable=False)
    done = (
        Replica.objects.filter(pk__in=turn)
        .filter(Exists(Cursor.objects.filter(replica=OuterRef("pk"))))
        .exclude(Exists(missing))
        .exclude(Exists(coming.filter(job__status__in=(JobStatus.PAUSED.value, JobStatus.SUBMITTED.value))))
        .select_related("node")
    )
    for replica in done.order_by("pk"):
        with transaction.atomic():
            first = Replica.objects.filter(pk=replica.pk, forget_sent_at=None).update(forget_sent_at=now)
            if first and replica.node is not None:
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
