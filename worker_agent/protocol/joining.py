"""How a machine becomes a node: what it asks, what it is told once, and which of its addresses becomes the node's.

Joining is one HTTP request. The control plane chooses the address, as it alone knows what the cluster asks for; the
agent chooses again by the same rule at every start, since addresses change.
"""

import ipaddress
from collections.abc import Sequence

import msgspec

from worker_agent.protocol.reports import Inventory

ADDRESSES_SHOWN = 8


class NoAddress(Exception):
    """The machine has no address of the kind that its cluster asks for: a sentence with what can be done."""


class OwnAddress(msgspec.Struct, frozen=True, kw_only=True):
    """One IPv4 address of a machine, on an interface that is up. TF_CONFIG has no way to write IPv6."""

    interface: str
    address: str


class Network(msgspec.Struct, frozen=True, kw_only=True):
    """What a cluster asks of its nodes' addresses: an interface, a range in CIDR notation; "" is any."""

    cluster: str
    interface: str = ""
    address_range: str = ""


class JoinRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `join`. `name` "" takes the machine's host name; `address` "" has one of the machine's own chosen.

    `address_towards` is the machine's own on the way to the control plane.
    """

    token: str
    address: str
    inventory: Inventory
    name: str = ""
    own_addresses: list[OwnAddress] = []
    address_towards: str = ""


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """What a new node is told, once. `node_key` is in hexadecimal; `address` "" is the one that was asked for."""

    node_id: str
    node_key: str
    node_name: str
    cluster: str
    redis_url: str
    heartbeat_s: float
    address: str = ""
    interface: str = ""
    address_range: str = ""


def choose_address(own: Sequence[OwnAddress], *, towards: str, network: Network, machine: str) -> str:
    """The address by which other nodes reach `machine`: the first that the cluster's network allows.

    `towards`, the default route's, where the cluster names neither interface nor range. Raises `NoAddress`.
    """
    if not network.interface and not network.address_range:
        return towards
    for one in own:
        if network.interface in ("", one.interface) and is_in_range(one.address, network.address_range):
            return one.address
    raise NoAddress(
        f"Cluster {network.cluster} asks for an IPv4 address {_asked(network)}, and {machine} has {_listed(own)}: "
        "join with --address, or change that in the cluster's settings."
    )


def is_in_range(address: str, address_range: str) -> bool:
    """Whether a numeric address lies in a range in CIDR notation; everything lies in ""."""
    if not address_range:
        return True
    try:
        return ipaddress.ip_address(address) in ipaddress.ip_network(address_range, strict=False)
    except ValueError:
        return False


def _asked(network: Network) -> str:
    interface = f"on the interface {network.interface}" if network.interface else ""
    address_range = f"in the range {network.address_range}" if network.address_range else ""
    return " and ".join(filter(None, [interface, address_range]))


def _listed(own: Sequence[OwnAddress]) -> str:
    if not own:
        return "none at all"
    shown = ", ".join(f"{one.address} on {one.interface}" for one in own[:ADDRESSES_SHOWN])
    return f"{shown}, …" if len(own) > ADDRESSES_SHOWN else f"only {shown}"
