"""Clusters, their nodes, and the one-time tokens by which nodes join."""

import ipaddress
import re
import secrets
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from orchestrator.domain.job.validation import env_problem
from orchestrator.models.columns import JSONField
from worker_agent.protocol.codec import typed
from worker_agent.protocol.reports import Device, RunningReplica, Sample
from worker_agent.protocol.states import NodeState

CLUSTER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
CLUSTER_NAME_WORDS = "Use 1 to 63 letters, digits, hyphens and underscores, a letter or digit first."
CHECKPOINT_PLACE_WORDS = "Write an absolute path without '..', such as /mnt/checkpoints, or leave it empty."
PORT = [MinValueValidator(1024), MaxValueValidator(65535)]
INTERFACE = re.compile(r"[A-Za-z0-9._:@-]{1,15}")


def new_node_id() -> str:
    """Twelve hex digits: also the name of the node's Celery queue, so never guessable from a row number."""
    return secrets.token_hex(6)


class Cluster(models.Model):
    """Nodes that can reach each other. Ports `port_first`..`port_last` are TensorFlow's on every node."""

    name = models.SlugField(max_length=63, unique=True)
    description = models.TextField(blank=True)
    address_range = models.CharField(
        max_length=64,
        blank=True,
        help_text="IPv4 range that the nodes' addresses must lie in, such as 10.0.4.0/24. Empty: any.",
    )
    interface = models.CharField(
        max_length=32,
        blank=True,
        help_text="Network interface whose address a node takes, such as eth1. Empty: the default route's.",
    )
    port_first = models.PositiveIntegerField(default=20000, validators=PORT)
    port_last = models.PositiveIntegerField(default=20999, validators=PORT)
    checkpoint_place = models.CharField(
        max_length=400,
        blank=True,
        help_text="Absolute path of a folder that all nodes share. Empty: Trainyard's own store.",
    )
    environment = JSONField(default=dict, blank=True, help_text="Environment variables for every replica.")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(port_first__lte=models.F("port_last")), name="cluster_ports_ordered"
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """What its columns must hold beyond their types; asked by the service that writes them, and by the admin."""
        errors: dict[str, str] = {}
        # A name from before this rule may stay; the names are compared here, because PostgreSQL takes no NUL.
        stored = Cluster.objects.filter(pk=self.pk).values_list("name", flat=True)
        if not CLUSTER_NAME.fullmatch(self.name) and self.name not in stored:
            errors["name"] = CLUSTER_NAME_WORDS
        if self.checkpoint_place and not _is_folder(self.checkpoint_place):
            errors["checkpoint_place"] = CHECKPOINT_PLACE_WORDS
        for name in ("description", "checkpoint_place"):
            if "\0" in getattr(self, name):
                errors[name] = "A NUL character cannot be stored: remove it."
        if self.address_range and not _is_range(self.address_range):
            errors["address_range"] = "Write a range such as 10.0.4.0/24 (IPv4), or leave it empty."
        if self.interface and not INTERFACE.fullmatch(self.interface):
            errors["interface"] = "Write a network interface such as eth1, or leave it empty."
        first, last = self.port_first, self.port_last
        if isinstance(first, int) and isinstance(last, int) and first > last:
            errors["port_last"] = f"The last port must not be below the first, {first}."
        if problem := env_problem(self.environment):
            errors["environment"] = problem
        if errors:
            raise ValidationError(errors)

    @property
    def node_count(self) -> int:
        """How many nodes it has."""
        return len(self.nodes.all())

    @property
    def variables(self) -> dict[str, str]:
        """Its environment as a process can have it."""
        return {str(name): str(value) for name, value in self.environment.items()}

    @property
    def ready_nodes(self) -> int:
        """How many of its nodes take jobs."""
        return sum(node.state == NodeState.READY for node in self.nodes.all())


def _is_folder(path: str) -> bool:
    place = PurePosixPath(path)
    return place.is_absolute() and ".." not in place.parts and path.isprintable()


def _is_range(text: str) -> bool:
    try:
        return bool(ipaddress.IPv4Network(text, strict=False))
    except ValueError:
        return False


@dataclass(frozen=True)
class Dirty:
    """A `device` or a `port` of a node that is not used because a replica that has ended left something there: what,
    since when. `name` is what people call it."""

    name: str
    device: int | None
    port: int | None
    left: list[str]
    replica_id: int
    job: int
    attempt: int
    replica: str
    since: datetime


class Node(models.Model):
    """A machine with an agent. `state` moves only through `services/transitions.py`; `key` signs both directions.

    `inventory` is `protocol.reports.Inventory` as plain JSON, `sample` the latest `protocol.reports.Sample`.
    `holding` is what its agent said last that it holds (`protocol.reports.RunningReplica` as plain JSON).
    `state_before_away` is where a node returns to when its agent is back. `dirty` are its `Dirty` devices and ports.
    """

    id = models.CharField(primary_key=True, max_length=12, default=new_node_id, editable=False)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="nodes")
    name = models.CharField(max_length=63)
    address = models.CharField(max_length=255, help_text="Host name or address at which other nodes reach it.")
    state = models.CharField(
        max_length=10, choices=[(s.value, s.value) for s in NodeState], default=NodeState.READY.value
    )
    state_reason = models.CharField(max_length=400, blank=True)
    state_before_away = models.CharField(max_length=10, blank=True)
    key = models.BinaryField(max_length=32, editable=False)
    inventory = JSONField(default=dict, blank=True)
    sample = JSONField(default=dict, blank=True)
    holding = JSONField(default=list, blank=True)
    dirty = JSONField(default=list, blank=True)
    last_seen_at = models.DateTimeField(null=True, blank=True)
    joined_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["cluster", "name"]
        constraints = [models.UniqueConstraint(fields=["cluster", "name"], name="node_name_unique_in_cluster")]
        indexes = [models.Index(fields=["cluster", "state"], name="node_by_state")]

    def __str__(self) -> str:
        return self.name

    @property
    def devices(self) -> list[Device]:
        """Its device slots, in order."""
        return typed(self.inventory.get("devices", []), list[Device])

    @property
    def not_used(self) -> list[Dirty]:
        """Its dirty devices, then its dirty ports."""
        return typed(self.dirty, list[Dirty])

    @property
    def dirty_devices(self) -> frozenset[int]:
        """The indexes of those devices."""
        return frozenset(each.device for each in self.not_used if each.device is not None)

    @property
    def dirty_ports(self) -> frozenset[int]:
        """Those ports."""
        return frozenset(each.port for each in self.not_used if each.port is not None)

    @property
    def load(self) -> Sample | None:
        """Its latest load; None before the first heartbeat, and where it is lost."""
        return typed(self.sample, Sample) if self.sample and self.state != NodeState.LOST else None

    @property
    def held_replicas(self) -> list[RunningReplica]:
        """What its agent said last that it holds."""
        return typed(self.holding, list[RunningReplica])


class JoinToken(models.Model):
    """A one-time token for one node of a cluster; only its SHA-256 is kept."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="join_tokens")
    digest = models.CharField(max_length=64, unique=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)
    used_by = models.ForeignKey(Node, null=True, blank=True, on_delete=models.SET_NULL)
