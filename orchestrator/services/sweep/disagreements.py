"""Rows and processes that no longer agree: steps of the sweep that compare what the database believes of replicas with
what the nodes' agents say they hold, and settle the difference in words.
"""

from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Exists, OuterRef

from orchestrator.domain.lifecycle import TERMINAL_REPLICA
from orchestrator.models import Command, Node, Replica
from orchestrator.services import outbox
from orchestrator.services.gang import gang
from orchestrator.services.transitions import StaleTransition, move_node
from worker_agent.protocol.commands import Stop
from worker_agent.protocol.reports import RunningReplica
from worker_agent.protocol.states import NodeState, ReplicaStatus

# An agent lists what it holds every second, and keeps listing a replica until its end has been acknowledged.
UNLISTED_AFTER = timedelta(seconds=20)
FRESH = timedelta(seconds=5)
LAUNCH_TAKEN_WITHIN = timedelta(seconds=60)
STOP_REPEATED_AFTER = timedelta(seconds=15)


def give_up_unlisted(*, now: datetime) -> None:
    """Replicas that their node's agent, alive and heard of, no longer knows."""
    started = Replica.objects.live().exclude(status=ReplicaStatus.ASSIGNED.value)
    for replica in started.filter(node__last_seen_at__gt=now - FRESH).select_related("node"):
        listed = replica.node is None or any(held.replica_id == replica.pk for held in replica.node.held_replicas)
        if listed:
            if replica.absent_since is not None:
                Replica.objects.filter(pk=replica.pk).update(absent_since=None)
        elif replica.absent_since is None:
            Replica.objects.filter(pk=replica.pk).update(absent_since=now)
        elif now - replica.absent_since > UNLISTED_AFTER:
            silent_s = (now - replica.absent_since).total_seconds()
            reason = f"The agent of {replica.node_name} runs, but has not known this process for {silent_s:.0f} s."
            gang.on_lost(replica=replica, reason=reason, now=now)


def stop_unknown(*, now: datetime) -> None:
    """Processes that run although the database has ended or forgotten them: their agents are told to end them."""
    for node in Node.objects.filter(last_seen_at__gt=now - FRESH).exclude(holding=[]):
        running = {held.replica_id: held for held in node.held_replicas if held.status is not ReplicaStatus.EXITED}
        known = Replica.objects.in_bulk(running)
        asked = set(
            Command.objects.filter(node=node, kind="stop", created_at__gt=now - STOP_REPEATED_AFTER)
            .exclude(replica=None)
            .values_list("replica_id", flat=True)
        )
        for replica_id in running.keys() - asked:
            replica = known.get(replica_id)
            if replica is None:
                _stop_forgotten(node, running[replica_id], now)
            elif replica.status in TERMINAL_REPLICA and replica.ended_at and now - replica.ended_at > FRESH:
                outbox.post_stop(replica=replica, reason="This replica has ended for the control plane.", now=now)


def repeat_stops(*, now: datetime) -> None:
    """Replicas that were asked to end and have not: asked again, and given up with their node in the end."""
    asked = Replica.objects.live().filter(stop_sent_at__lt=now - STOP_REPEATED_AFTER)
    for replica in asked.select_related("node", "job"):
        stops = list(Command.objects.filter(replica=replica, kind="stop").order_by("pk"))
        if not stops or replica.node is None or replica.node.state == NodeState.LOST:
            continue
        if replica.give_up_at and now > replica.give_up_at and any(stop.acked_at for stop in stops):
            _give_up_stuck(replica, replica.node, now - stops[0].created_at, now)
        else:
            outbox.repeat_stop(replica=replica, last=stops[-1], now=now)


def give_up_unanswered_launches(*, now: datetime) -> None:
    """Replicas whose agent lives but never took the launch command."""
    assigned = Replica.objects.live().filter(status=ReplicaStatus.ASSIGNED.value)
    unanswered = assigned.filter(stop_sent_at=None, node__isnull=False)
    for replica in unanswered.exclude(node__state=NodeState.LOST.value).filter(
        Exists(
            Command.objects.filter(
                replica=OuterRef("pk"), kind="launch", acked_at=None, created_at__lt=now - LAUNCH_TAKEN_WITHIN
            )
        )
    ):
        waited_s = LAUNCH_TAKEN_WITHIN.total_seconds()
        reason = f"The agent of {replica.node_name} did not accept the launch command within {waited_s:.0f} s."
        gang.on_unanswered(replica=replica, reason=reason, now=now)


def _stop_forgotten(node: Node, held: RunningReplica, now: datetime) -> None:
    """A running replica without a row (its job was deleted). One unanswered Stop at a time."""
    if Command.objects.filter(node=node, replica=None, kind="stop", created_at__gt=now - STOP_REPEATED_AFTER).exists():
        return
    stop = Stop(
        command_id=outbox.NEW,
        replica_id=held.replica_id,
        attempt=held.attempt,
        grace_s=settings.STOP_GRACE_S,
        reason="The job of this replica has been deleted.",
    )
    outbox.post(stop, node=node, now=now)


def _give_up_stuck(replica: Replica, node: Node, waited: timedelta, now: datetime) -> None:
    reason = (
        f"{replica.words} of j-{replica.job_id} could not be ended within {waited.total_seconds():.0f} s; "
        "its device may still be in use."
    )
    if node.state == NodeState.READY:
        try:
            move_node(
                node=node, to=NodeState.CORDONED, now=now, reason=reason, text=f"{node.name} was cordoned: {reason}"
            )
        except StaleTransition:
            return
    gang.on_lost(replica=replica, reason=reason, now=now)
