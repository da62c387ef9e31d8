"""Where other nodes reach this machine: its own addresses, and which of them is the node's at this start.

Called by `__main__`, when joining and before each run.
"""

import contextlib
import socket
from urllib.parse import urlsplit

import msgspec
import psutil
import structlog

from worker_agent.daemon.control_plane import ControlPlane, Rejected, Unreachable
from worker_agent.daemon.settings import AgentIdentity
from worker_agent.protocol.joining import Network, NoAddress, OwnAddress, choose_address

log = structlog.get_logger("agent")


def own_addresses() -> list[OwnAddress]:
    """The IPv4 addresses of interfaces that are up, in the kernel's order."""
    down = {name for name, state in psutil.net_if_stats().items() if not state.isup}
    return [
        OwnAddress(interface=name, address=found.address)
        for name, addresses in psutil.net_if_addrs().items()
        for found in addresses
        if found.family == socket.AF_INET and name not in down
    ]


def address_towards(url: str) -> str:
    """This machine's own address on the way to the control plane (nothing is sent); raises `OSError`."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    family, kind, protocol, _, place = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(place)
        return str(probe.getsockname()[0])


def with_current_address(identity: AgentIdentity) -> AgentIdentity:
    """The identity with what its cluster asks for now and the address that fits it now.

    An address that was given when joining stays. Without a fitting one the last stays, as replicas may be at work.
    """
    if identity.address_given:
        return identity
    network = _network(identity)
    towards = address = ""
    with contextlib.suppress(OSError):
        towards = address_towards(identity.url)
    try:
        address = choose_address(own_addresses(), towards=towards, network=network, machine=identity.node_name)
    except NoAddress as error:
        log.warning("the address stays", address=identity.address, reason=str(error))
    return msgspec.structs.replace(
        identity,
        address=address or identity.address,
        interface=network.interface,
        address_range=network.address_range,
    )


def _network(identity: AgentIdentity) -> Network:
    """What the cluster asks for, as the control plane says, or as it said last."""
    control_plane = ControlPlane(identity.url, node_id=identity.node_id, key=identity.key)
    with contextlib.closing(control_plane), contextlib.suppress(Unreachable, Rejected):
        return control_plane.network()
    return Network(cluster=identity.cluster, interface=identity.interface, address_range=identity.address_range)
