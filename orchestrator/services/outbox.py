"""Commands to nodes: a row first, sent when the transaction commits, sent again until the agent has acknowledged it.

Commands are idempotent by (replica, attempt), so sending one twice is harmless; one that nobody needs any more is
closed instead of being sent.
"""

import logging
from datetime import datetime, timedelta
from functools import partial

import msgspec
from django.conf import settings
from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Coalesce

from orchestrator import agents
from orchestrator.domain.lifecycle import TERMINAL_REPLICA
from orchestrator.domain.words import storable
from orchestrator.models import Command, Node, Replica
from worker_agent.protocol import commands
from worker_agent.protocol.codec import decode_command, encode
from worker_agent.protocol.states import Cause, NodeState, ReplicaStatus

logger = logging.getLogger(__name__)

# What stands for a command's id until its row gives it one.
NEW = 0
# A row that was not sent on its commit (broker down, process killed) is taken up after this.
UNSENT_AFTER = timedelta(seconds=1)
RESEND_LIMIT = 500
# The nodes of a preflight meet within seconds; who hears of it later meets nobody, and will soon have ended by itself.
PROBE_LIFE = timedelta(seconds=10)
# A process that survives SIGKILL for so long will not end: it holds nobody up any more, and its node is cordoned.
STUCK_AFTER = timedelta(seconds=120)


def post(message: commands.Command, *, node: Node, now: datetime, replica: Replica | None = None) -> Command:
    """Write one command, whose id is `NEW`, and send it on commit."""
    kind = str(message.__struct_config__.tag)
    row = Command.objects.create(node=node, replica=replica, kind=kind, body=b"", created_at=now)
    row.body = encode(commands.sendable(msgspec.structs.replace(message, command_id=row.pk)))
    row.save(update_fields=["body"])
    transaction.on_commit(partial(send, row, now=now))
    return row


def send(row: Command, *, now: datetime) -> bool:
    """Hand one command to the node's queue; False when the broker did not take it."""
    launch = row.pk if row.kind == "launch" else None
    parcel = agents.Parcel(node_id=row.node_id, key=bytes(row.node.key), body=bytes(row.body), launch=launch)
    try:
        agents.send(parcel, now=now)
    except agents.NotSent as error:
        logger.warning("command %s to node %s was not sent, the sweep will: %s", row.pk, row.node_id, error)
        return False
    Command.objects.filter(pk=row.pk).update(sent_at=now, times_sent=F("times_sent") + 1)
    return True


def post_stop(
    *,
    replica: Replica,
    reason: str,
    now: datetime,
    cause: Cause = Cause.STOPPED,
    grace_s: float | None = None,
    save: bool = False,
    stacks: bool = False,
) -> None:
    """Ask the replica's node to end it, within the usual time where no `grace_s` is given."""
    give_up_at = Coalesce("give_up_at", now + STUCK_AFTER + timedelta(seconds=grace_s or 0.0))
    Replica.objects.filter(pk=replica.pk).update(give_up_at=give_up_at)
    stop = commands.Stop(
        command_id=NEW,
        replica_id=replica.pk,
        attempt=replica.attempt,
        grace_s=settings.STOP_GRACE_S if grace_s is None else grace_s,
        reason=reason,
        cause=cause,
        save=save,
        stacks=stacks,
    )
    _ask_to_end(replica, stop, now)


def repeat_stop(*, replica: Replica, last: Command, now: datetime) -> None:
    """Ask once more, in the words of the `last` stop."""
    _ask_to_end(replica, decode_command(bytes(last.body)), now)


def acknowledge(*, command_id: int, node: Node, refused: str, now: datetime) -> Command | None:
    """Note the agent's answer; the row when this is the first one, else None."""
    first = Command.objects.filter(pk=command_id, node=node, acked_at=None).update(
        acked_at=now, refused=storable(refused)
    )
    if not first:
        return None
    return Command.objects.select_related("replica").get(pk=command_id)


def launch_was_taken(replica: Replica) -> bool:
    """Whether the agent has acknowledged the replica's launch."""
    return Command.objects.filter(replica=replica, kind="launch", refused="").exclude(acked_at=None).exists()


def withdraw_launch(replica: Replica) -> None:
    """However late its launch arrives, no agent begins it any more; raises `agents.NotSent` if that cannot be had."""
    if launches := list(Command.objects.filter(replica=replica, kind="launch").values_list("pk", flat=True)):
        agents.withdraw(launches)


def renew_permits() -> None:
    """What an agent has taken and not begun stays permitted: the next agent asks, should this one be killed."""
    starting = Replica.objects.live().filter(
        status=ReplicaStatus.STARTING.value, pid=None, stop_sent_at=None, attempt=F("job__attempt")
    )
    awaited = Command.objects.filter(kind="launch", replica__in=list(starting.values_list("pk", flat=True)))
    if launches := list(awaited.values_list("pk", flat=True)):
        try:
            agents.renew(launches)
        except agents.NotSent as error:
            logger.warning("the permits of %s launches were not renewed: %s", len(launches), error)


def resend(*, now: datetime) -> int:
    """Send again what was not acknowledged; close what is no longer needed. Returns how many were sent."""
    overdue = now - timedelta(seconds=settings.COMMAND_RESEND_S)
    due = (
        Command.objects.filter(acked_at=None)
        .filter(Q(sent_at=None, created_at__lt=now - UNSENT_AFTER) | Q(sent_at__lt=overdue))
        .exclude(node__state=NodeState.LOST.value)
        .select_related("node", "replica")
        .order_by("pk")
    )
    sent = 0
    for row in due[:RESEND_LIMIT]:
        if _needless(row, now):
            Command.objects.filter(pk=row.pk, acked_at=None).update(acked_at=now, refused="no longer needed")
        elif not send(row, now=now):
            break
        else:
            sent += 1
    return sent


def _ask_to_end(replica: Replica, stop: commands.Command, now: datetime) -> None:
    if replica.node is not None:
        Replica.objects.filter(pk=replica.pk).update(stop_sent_at=now)
        post(stop, node=replica.node, replica=replica, now=now)


def _needless(row: Command, now: datetime) -> bool:
    if row.kind in ("probe", "withdraw"):
        return row.created_at < now - PROBE_LIFE
    if row.replica is None or row.kind == "forget":
        return False
    if row.kind == "launch":
        return row.replica.status != ReplicaStatus.ASSIGNED or row.replica.stop_sent_at is not None
    return row.replica.status in TERMINAL_REPLICA
