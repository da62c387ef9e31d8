"""What REST takes and gives about clusters and nodes, as types. Names are kept; fields may be added."""

from datetime import datetime
from typing import Any

from ninja import Schema
from pydantic import ConfigDict, Field

from worker_agent.protocol.states import NodeState


class Cluster(Schema):
    """Nodes that can reach each other."""

    model_config = ConfigDict(populate_by_name=True)

    name: str
    description: str
    address_range: str
    interface: str
    port_first: int
    port_last: int
    checkpoint_place: str
    environment: dict[str, str]
    nodes: int = Field(validation_alias="node_count")
    ready_nodes: int
    created_at: datetime


class ClusterRequest(Schema):
    """A cluster to be registered."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(description="Lower-case letters, digits, '-' and '_'.")
    description: str = ""
    address_range: str = Field(default="", description="IPv4 range that nodes' addresses must lie in. Empty: any.")
    interface: str = Field(
        default="", description="Network interface whose address a node takes. Empty: the default route's."
    )
    port_first: int = 20000
    port_last: int = 20999
    checkpoint_place: str = Field(
        default="", description="Absolute path of a folder that all nodes share. Empty: Trainyard's own store."
    )
    environment: dict[str, str] = {}


class JoinToken(Schema):
    """A one-time token, shown this once, and the command line that uses it on the new node."""

    token: str
    command: str


class Device(Schema):
    """One device of a node and what holds it. A dirty one was not given back by a replica that has ended."""

    index: int
    kind: str
    name: str
    state: str = Field(description="free, held, dirty or lost.")
    job: int | None
    replica: str | None


class Dirty(Schema):
    """A device or port that is not used, because a replica that has ended left something there."""

    name: str
    device: int | None
    port: int | None
    left: list[str] = Field(description="What holds it, such as a process that could not be ended.")
    job: int
    attempt: int
    replica: str
    since: datetime


class Node(Schema):
    """A machine with an agent."""

    id: str
    name: str
    cluster: str
    address: str
    state: NodeState
    reason: str
    devices: list[Device]
    dirty: list[Dirty]
    inventory: dict[str, Any]
    sample: dict[str, Any] = Field(description="The latest load, as the agent measured it.")
    last_seen_at: datetime | None
    joined_at: datetime


class Reason(Schema):
    """Why; it is shown beside the node."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field(default="", max_length=400)


class NewName(Schema):
    """Another name."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=63)
