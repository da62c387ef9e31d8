"""Who listens on a TCP port of this machine, from `/proc`. Called by `cleanup.py`."""

import contextlib
import ipaddress
import sys
from pathlib import Path

_PROC = Path("/proc")
_LISTENING = "0A"


def listening(host: str, port: int) -> set[int]:
    """The sockets (inodes) that listen on `port` at `host`, or at every address. A host name stands for any."""
    wanted = _address(host)
    found = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (_PROC / "self/net" / table).read_text().splitlines()[1:]:
                fields = line.split()
                address, _, number = fields[1].rpartition(":")
                if fields[3] != _LISTENING or int(number, 16) != port:
                    continue
                own = _decoded(address)
                if wanted is None or int(own) == 0 or own == wanted:
                    found.add(int(fields[9]))
    return found


def holder(sockets: set[int]) -> int | None:
    """The lowest pid that has one of these sockets open; None when nobody whom we may look at has."""
    names = {f"socket:[{inode}]" for inode in sockets}
    for pid in sorted(int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal()):
        with contextlib.suppress(OSError):
            for descriptor in (_PROC / str(pid) / "fd").iterdir():
                with contextlib.suppress(OSError):
                    if str(descriptor.readlink()) in names:
                        return pid
    return None


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    with contextlib.suppress(ValueError):
        return _plain(ipaddress.ip_address(host.strip("[]")))
    return None


def _decoded(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The kernel writes addresses as 32-bit words in the machine's byte order."""
    words = [bytes.fromhex(text[start : start + 8]) for start in range(0, len(text), 8)]
    raw = b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
    return _plain(ipaddress.ip_address(raw))


def _plain(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
