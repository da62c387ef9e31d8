"""Who listens on a TCP port of this machine. Asked when a replica has ended, and when its port is taken."""

import ipaddress

import psutil


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
