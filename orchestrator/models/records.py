"""What was said and done: the command outbox, the cursors, metric blocks, log chunks, events, service beats."""

from django.conf import settings
from django.db import models
from django.utils import timezone

from orchestrator.models.jobs import Job, Replica
from orchestrator.models.machines import Node


class Command(models.Model):
    """The outbox: a command to a node, sent again by the sweep until the agent acknowledged it.

    `body` is the encoded message without envelope (each sending is sealed anew).
    """

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="commands")
    replica = models.ForeignKey(Replica, null=True, on_delete=models.CASCADE, related_name="commands")
    kind = models.CharField(max_length=10)
    body = models.BinaryField()
    created_at = models.DateTimeField(default=timezone.now)
    sent_at = models.DateTimeField(null=True, blank=True)
    times_sent = models.PositiveIntegerField(default=0)
    acked_at = models.DateTimeField(null=True, blank=True)
    refused = models.TextField(blank=True)

    class Meta:
        indexes = [models.Index(fields=["id"], condition=models.Q(acked_at=None), name="command_open")]


class Cursor(models.Model):
    """How far a spool stream is stored, in bytes; moved in the transaction that stores what lies before it.

    `final` is the stream's length once known (from the Exit record): complete when `offset` has reached it.
    """

    replica = models.ForeignKey(Replica, on_delete=models.CASCADE, related_name="cursors")
    stream = models.CharField(max_length=8)
    offset = models.PositiveBigIntegerField(default=0)
    final = models.PositiveBigIntegerField(null=True, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["replica", "stream"], name="cursor_unique")]


class SeriesBlock(models.Model):
    """A run of points of one series, columnar: `count` int64 steps, float64 times (unix s), float64 values.

    Belongs to a replica (training series, node columns empty) or to a node (load). Small blocks are merged as they
    gather (`orchestrator/series.py`).
    """

    replica = models.ForeignKey(Replica, null=True, on_delete=models.CASCADE, related_name="blocks")
    node = models.ForeignKey(Node, null=True, on_delete=models.CASCADE, related_name="blocks")
    name = models.CharField(max_length=200)
    count = models.PositiveIntegerField()
    last_time = models.FloatField()
    payload = models.BinaryField()

    class Meta:
        indexes = [
            models.Index(fields=["replica", "name", "id"], name="block_by_replica"),
            models.Index(fields=["node", "name", "id"], name="block_by_node"),
            models.Index(fields=["last_time"], condition=models.Q(node__isnull=False), name="block_of_load_by_age"),
        ]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(replica__isnull=True, node__isnull=False)
                | models.Q(replica__isnull=False, node__isnull=True),
                name="block_has_one_owner",
            ),
        ]


class LogChunk(models.Model):
    """Log text of a replica: UTF-8 bytes [`start`, `end`) of all it ever wrote, said at `at` on the node's clock."""

    replica = models.ForeignKey(Replica, on_delete=models.CASCADE, related_name="log_chunks")
    start = models.PositiveBigIntegerField()
    end = models.PositiveBigIntegerField()
    at = models.FloatField()
    text = models.TextField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["replica", "start"], name="log_chunk_unique")]


class Event(models.Model):
    """One line of history, also the audit trail: who or what did which thing to a job, a process of it, a
    node or a cluster. Append only.
    """

    job = models.ForeignKey(Job, null=True, blank=True, on_delete=models.CASCADE, related_name="events")
    node = models.ForeignKey(Node, null=True, blank=True, on_delete=models.SET_NULL, related_name="events")
    replica = models.ForeignKey(Replica, null=True, blank=True, on_delete=models.CASCADE, related_name="events")
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL)
    at = models.DateTimeField(auto_now_add=True)
    kind = models.CharField(max_length=32)
    text = models.TextField()
    attempt = models.PositiveIntegerField(null=True, blank=True)

    class Meta:
        ordering = ["id"]
        indexes = [
            models.Index(fields=["job", "id"], name="event_by_job"),
            models.Index(fields=["node", "id"], name="event_by_node"),
        ]

    @property
    def actor_name(self) -> str | None:
        """Who did it, if a person did."""
        return self.actor.username if self.actor else None

    @property
    def node_name(self) -> str | None:
        """The node it is about, if one is."""
        return self.node.name if self.node else None


class ServiceBeat(models.Model):
    """The life of a control-plane loop (`ingest`, `sweep`): silence of nodes is judged only while ingest has been alive
    without a break since `alive_since`."""

    INGEST, SWEEP = "ingest", "sweep"

    name = models.CharField(primary_key=True, max_length=16)
    alive_since = models.DateTimeField()
    beat_at = models.DateTimeField()
