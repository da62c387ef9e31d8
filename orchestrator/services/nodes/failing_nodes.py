"""Nodes on which attempts fail again and again, and not of their programs: avoided at first, then cordoned. Avoided for
a while, too, are those where a process got a SIGTERM from outside: such a machine is mostly about to go.

Placement asks `to_avoid` (`services/nodes/cluster_snapshot.py`); the sweep calls `cordon_failing`. Of each job one
failure counts, the latest: a program that kills itself and is launched again at once says nothing about its node. A
node that an administrator takes into use again begins anew. The last ready node of a cluster is never cordoned: it
would end all work there on a guess; it is said in its history instead, once in a while.
"""

from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Count, QuerySet

from orchestrator.models import Attempt, Cluster, Event, Node, Replica
from orchestrator.services import transitions
from orchestrator.services.transitions import StaleTransition, move_node
from worker_agent.protocol.causes import NODE_LEAVES, Blame
from worker_agent.protocol.states import NodeState

# A node on which attempts of so many jobs failed within so long is used only where the others have no room.
FAILURES_AVOIDED = 3
WITHIN = timedelta(hours=1)
# Clouds take a machine back 30 s to 2 minutes after they said so.
NOTICE = timedelta(minutes=2)
SHOWN = 3
LAST_ONE = "node_failing"


def to_avoid(cluster: Cluster, *, now: datetime) -> set[str]:
    """The ids of the cluster's nodes that are used only where the others have no room."""
    leaving = Replica.objects.filter(ended_at__gt=now - NOTICE, cause__in=NODE_LEAVES, node__cluster=cluster)
    return often_failing(cluster, now=now) | set(leaving.order_by().values_list("node", flat=True).distinct())


def often_failing(cluster: Cluster, *, now: datetime) -> set[str]:
    """The ids of the cluster's nodes on which attempts of several jobs failed lately."""
    suspects = _suspects(FAILURES_AVOIDED, now).filter(cluster=cluster)
    return {node.pk for node in suspects if len(_failures(node, now)) >= FAILURES_AVOIDED}


def cordon_failing(*, now: datetime) -> None:
    """Take nodes out of use on which attempts of `NODE_FAILURES_CORDON` jobs have failed within an hour (0: never)."""
    most = settings.NODE_FAILURES_CORDON
    if not most:
        return
    for node in _suspects(most, now).filter(state=NodeState.READY.value).select_related("cluster"):
        failed = _failures(node, now)
        if len(failed) >= most:
            _take_out(node, failed, now)


def _suspects(most: int, now: datetime) -> QuerySet[Node]:
    """Nodes on which attempts of so many jobs failed lately, with one query, before the history is asked."""
    often = _lately(now).order_by().values("failed_on").annotate(jobs=Count("job", distinct=True))
    return Node.objects.filter(pk__in=often.filter(jobs__gte=most).values("failed_on"))


def _failures(node: Node, now: datetime) -> list[Attempt]:
    """Each job's latest on the node since an administrator last took it into use, the latest of all first."""
    used = Event.objects.filter(node=node, kind="node_ready", at__gt=now - WITHIN).exclude(actor=None)
    since = used.order_by("-pk").values_list("at", flat=True).first()
    found = _lately(now).filter(failed_on=node).order_by("ended_at", "pk")
    of_job = {attempt.job_id: attempt for attempt in (found.filter(ended_at__gt=since) if since else found)}
    return sorted(of_job.values(), key=lambda attempt: attempt.ended_at or now, reverse=True)


def _lately(now: datetime) -> QuerySet[Attempt]:
    """Attempts that a node ended within the hour by its own doing (`Blame.MACHINE`)."""
    return Attempt.objects.filter(blame=Blame.MACHINE.value, ended_at__gt=now - WITHIN, failed_on__isnull=False)


def _take_out(node: Node, failed: list[Attempt], now: datetime) -> None:
    reason = f"Attempts of {len(failed)} jobs failed here within an hour: {_listed(failed)}."
    others = node.cluster.nodes.filter(state=NodeState.READY.value).exclude(pk=node.pk)
    if not others.exists():
        if not Event.objects.filter(node=node, kind=LAST_ONE, at__gt=now - WITHIN).exists():
            text = f"{reason} It is the last ready node of cluster {node.cluster.name}, so it is not cordoned."
            transitions.record(kind=LAST_ONE, text=text, node=node)
        return
    text = f"{node.name} was cordoned: {reason}"
    try:
        move_node(node=node, to=NodeState.CORDONED, now=now, reason=reason, text=text)
    except StaleTransition:  # somebody else has moved it at this moment
        return


def _listed(failed: list[Attempt]) -> str:
    """`j-3 (node lost, 12:01 UTC), …`, the latest first."""
    shown = [f"j-{each.job_id} ({each.cause.replace('_', ' ')}, {each.ended_at:%H:%M} UTC)" for each in failed[:SHOWN]]
    return ", ".join(shown) + (f" and {len(failed) - SHOWN} more" if len(failed) > SHOWN else "")
