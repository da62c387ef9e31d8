"""Listening on a TCP port of this machine: whether one can, and who does. Asked before a replica starts, when its port
is taken, and when it has ended."""

import ipaddress
import socket

import psutil


def bound(port: int) -> socket.socket:
    """A socket on the port, where TensorFlow will listen, too; raises OSError when somebody else has it."""
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(("", port))
    except OSError:
        opened.close()
        raise
    return opened


def listener(host: str, port: int) -> int | None:
    """The pid of who listens on `port` at `host`, or at every address; 0 for somebody whom we may not look at, None for
    nobody. A host name stands for any address."""
    wanted = _address(host)
    pids = [
        each.pid
        for each in psutil.net_connections("tcp")
        if each.status == psutil.CONN_LISTEN
        and each.laddr.port == port
        and ((own := _address(each.laddr.ip)) is None or own.is_unspecified or wanted in (None, own))
    ]
    return next(filter(None, pids), 0) if pids else None


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
    return (address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None) or address
