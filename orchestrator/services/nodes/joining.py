"""How machines come in and prove who they are: one-time tokens, joining, and the signature of agents' HTTP requests.

Called by the machine pages, the admin and REST. A token is shown once and works once; the key that a node gets in
exchange signs everything it says and is told from then on.
"""

import hmac
import ipaddress
import re
import secrets
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

from django.conf import settings
from django.core.cache import cache
from django.db import transaction

from orchestrator import enqueue, live
from orchestrator.models import Cluster, JoinToken, Node, User, digest_of
from orchestrator.services import transitions
from orchestrator.services.errors import Conflict, FieldError, Forbidden, Invalid, words_of
from orchestrator.services.transitions import announce_node
from worker_agent.protocol.codec import plain
from worker_agent.protocol.envelope import sign_request
from worker_agent.protocol.joining import Grant, JoinRequest, Network, NoAddress, choose_address, is_in_range
from worker_agent.protocol.reports import Inventory
from worker_agent.protocol.states import DeviceKind

TOKEN_PREFIX = "ty_join_"
TOKEN_LIFE = timedelta(hours=24)
HEARTBEAT_S = 1.0
CLOCK_SKEW_S = 300
NODE_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
ADDRESS = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?")
EVENT_CHARS = 1000
NAME_SHOWN = 63
REFUSAL_GAP_S = 60
MAX_DEVICES = 256


def create_join_token(*, cluster: Cluster, by: User, now: datetime | None = None) -> str:
    """A token with which one machine may join the cluster within a day."""
    if not by.may_administer:
        raise Forbidden("Only administrators may let machines join.")
    token = TOKEN_PREFIX + secrets.token_urlsafe(24)
    expires = (now or datetime.now(UTC)) + TOKEN_LIFE
    JoinToken.objects.create(cluster=cluster, digest=digest_of(token), created_by=by, expires_at=expires)
    return token


def join_command(token: str) -> str:
    """The one line to run on the new machine, in a checkout where `make agent` has made the environment."""
    return f".venv/bin/python -m worker_agent join {settings.PUBLIC_URL} --token {token}"


def public_url_is_loopback() -> bool:
    """Whether the address in the join command means, on every machine, that machine itself."""
    host = urlsplit(settings.PUBLIC_URL).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def join(asked: JoinRequest, *, now: datetime | None = None) -> Grant:
    """Register the machine that shows this token. A refusal leaves the token unused and is said in an event.

    `name` "" takes its host name, `address` "" the one of its own addresses that the cluster asks for.
    """
    now = now or datetime.now(UTC)
    tokens = JoinToken.objects.select_related("cluster")
    known = tokens.filter(digest=digest_of(asked.token)).first() if asked.token.isascii() else None
    name = asked.name.strip() or _name_from(asked.inventory.hostname)
    try:
        with transaction.atomic():
            row = _taken(known, now)
            address = asked.address.strip() or _chosen(asked, cluster=row.cluster, machine=name)
            node = _register(row, name=name, address=address, inventory=asked.inventory, now=now)
    except (Forbidden, Invalid, Conflict) as error:
        _record_refusal(error, row=known, name=name)
        raise
    return Grant(
        node_id=node.pk,
        node_key=bytes(node.key).hex(),
        node_name=node.name,
        cluster=row.cluster.name,
        redis_url=settings.AGENT_REDIS_URL,
        heartbeat_s=HEARTBEAT_S,
        address=node.address,
        interface=row.cluster.interface,
        address_range=row.cluster.address_range,
    )


def network_of(cluster: Cluster) -> Network:
    """What the cluster asks of the addresses of its nodes."""
    return Network(cluster=cluster.name, interface=cluster.interface, address_range=cluster.address_range)


def authenticate_request(*, node_id: str, method: str, path: str, at: int, mac: str, now: datetime) -> Node:
    """The node whose key signed an HTTP request; `Forbidden` otherwise."""
    node = Node.objects.filter(pk=node_id).first()
    key = bytes(node.key) if node else bytes(32)
    genuine = hmac.compare_digest(sign_request(method=method, path=path, at=at, key=key).encode(), mac.encode())
    if node is None or not genuine:
        raise Forbidden("The signature is not that of a node of this installation.")
    if abs(now.timestamp() - at) > CLOCK_SKEW_S:
        raise Forbidden(
            f"The request was signed {abs(now.timestamp() - at):.0f} s away from now: set the clock of {node.name}."
        )
    return node


def name_problem(name: str) -> str:
    """What is wrong with a node's name; "" when nothing is."""
    if NODE_NAME.fullmatch(name):
        return ""
    return "Use 1 to 63 letters, digits and '-', neither beginning nor ending with '-'."


def _taken(row: JoinToken | None, now: datetime) -> JoinToken:
    """The token, marked as used; `Forbidden` where it may not be."""
    if row is None:
        raise Forbidden("This join token is not known here: copy the whole command from the cluster's page.")
    if row.used_at is None and row.expires_at < now:
        raise Forbidden("This join token has expired: make a new one on the cluster's page.")
    if not JoinToken.objects.filter(pk=row.pk, used_at=None).update(used_at=now):
        raise Forbidden("This join token has been used already: every machine needs one of its own.")
    return row


def _record_refusal(error: Forbidden | Invalid | Conflict, *, row: JoinToken | None, name: str) -> None:
    """Say it in an event. Without a good token anyone can be refused, so of those one per cluster and minute is told,
    and one of unknown tokens."""
    place = f"cluster {row.cluster.name}" if row else "any cluster"
    told_lately = f"join-refused-{row.cluster_id if row else 'unknown'}"
    if isinstance(error, Forbidden) and not cache.add(told_lately, 1, timeout=REFUSAL_GAP_S):
        return
    words = f"A machine could not join {place} as {name[:NAME_SHOWN]!r}. {words_of(error)}"
    transitions.record(kind="node_refused", text=words[:EVENT_CHARS], actor=row.created_by if row else None)


def _register(row: JoinToken, *, name: str, address: str, inventory: Inventory, now: datetime) -> Node:
    problems = {
        "name": name_problem(name),
        "address": _address_problem(address, row.cluster),
        "inventory": _inventory_problem(inventory),
    }
    if errors := [FieldError(field, problem) for field, problem in problems.items() if problem]:
        raise Invalid(errors)
    if Node.objects.filter(cluster=row.cluster, name=name).exists():
        raise Conflict(f"Cluster {row.cluster.name} has a node {name} already: join with --name, or remove that one.")
    node = Node.objects.create(
        cluster=row.cluster,
        name=name,
        address=address,
        key=secrets.token_bytes(32),
        inventory=live.jsonable(plain(inventory)),
        last_seen_at=now,
    )
    JoinToken.objects.filter(pk=row.pk).update(used_by=node)
    text = f"{name} joined cluster {row.cluster.name} from {address} with {len(inventory.devices)} devices."
    transitions.record(kind="node_joined", text=text, node=node, actor=row.created_by)
    announce_node(node)
    enqueue.ask_to_dispatch()
    return node


def _chosen(asked: JoinRequest, *, cluster: Cluster, machine: str) -> str:
    try:
        network = network_of(cluster)
        return choose_address(asked.own_addresses, towards=asked.address_towards, network=network, machine=machine)
    except NoAddress as error:
        raise Invalid([FieldError("address", str(error))]) from error


def _name_from(hostname: str) -> str:
    """A host name as a node name: its first label, with what does not fit made into '-'."""
    return re.sub(r"[^A-Za-z0-9-]+", "-", hostname.split(".")[0]).strip("-")[:63]


def _address_problem(address: str, cluster: Cluster) -> str:
    try:
        if ipaddress.ip_address(address).version == 6:
            return "IPv6 addresses cannot be used in TF_CONFIG: give a host name or IPv4 address."
    except ValueError:
        if not ADDRESS.fullmatch(address):
            return f"{address[:80]!r} is neither a host name nor an IP address."
    if is_in_range(address, cluster.address_range):
        return ""
    return (
        f"{address} is not in {cluster.address_range}, the address range of cluster {cluster.name}: join with "
        "--address and an address of that range, or change it in the cluster's settings."
    )


def _inventory_problem(inventory: Inventory) -> str:
    devices = inventory.devices
    if not 1 <= len(devices) <= MAX_DEVICES:
        return f"A node has 1 to {MAX_DEVICES} devices; this one lists {len(devices)}."
    if len({device.index for device in devices}) != len(devices):
        return "Two devices have the same index."
    if any(device.kind not in set(DeviceKind) for device in devices):
        return f"A device is one of {', '.join(DeviceKind)}."
    return ""
