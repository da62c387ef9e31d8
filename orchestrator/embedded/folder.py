"""The data folder of an embedded Trainyard: who uses it, its first-run secrets, and the ports it remembers.

Called by `manage.py up` (which takes the lock), by `manage.py prepare` and `demo` (which only read), and by `manage.py
ingest`, which has a lock of its own.
"""

import fcntl
import json
import os
import secrets
from pathlib import Path
from typing import TextIO

import msgspec


class FolderInUse(Exception):
    """Another `up` runs on this data folder."""


class Secrets(msgspec.Struct, frozen=True):
    """Made once, on first run, and kept in `secrets.json` (mode 0600)."""

    secret_key: str
    redis_password: str
    admin_password: str
    api_token: str


def lock(data: Path) -> TextIO:
    """Take the folder for this process until it ends; raises `FolderInUse` naming the process that has it."""
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    if (handle := locked(data / "up.lock")) is None:
        raise FolderInUse(
            f"Trainyard is already running on the data folder {data} "
            f"(process {(data / 'up.lock').read_text().strip() or 'unknown'}). "
            "Stop that one first, or choose another folder with --data."
        )
    return handle


def locked(path: Path) -> TextIO | None:
    """The file, locked until it is closed, with this process's id in it; None while another process has locked it."""
    handle = path.open("a")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        handle.close()
        return None
    handle.truncate(0)
    handle.write(str(os.getpid()))
    handle.flush()
    return handle


def first_run_secrets(data: Path) -> Secrets:
    """The folder's secrets, made if there are none yet."""
    path = data / "secrets.json"
    if not path.exists():
        made = Secrets(
            secret_key=secrets.token_urlsafe(48),
            redis_password=secrets.token_urlsafe(32),
            admin_password=secrets.token_urlsafe(12),
            api_token=f"ty_{secrets.token_urlsafe(32)}",
        )
        write_private(path, msgspec.to_builtins(made))
    return read_secrets(data)


def read_secrets(data: Path) -> Secrets:
    """The folder's secrets."""
    return msgspec.json.decode((data / "secrets.json").read_bytes(), type=Secrets)


def remembered(data: Path, name: str) -> int | None:
    """A number kept from the last run, such as the port of Redis."""
    path = data / "remembered.json"
    value = json.loads(path.read_text()).get(name) if path.exists() else None
    return value if isinstance(value, int) else None


def remember(data: Path, name: str, value: int) -> None:
    """Keep a number for the next run."""
    path = data / "remembered.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    write_private(path, known | {name: value})


def write_private(path: Path, content: object) -> None:
    """Write JSON that only the owner can read, whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as handle:
        json.dump(content, handle, indent=2)
        handle.write("\n")
        handle.flush()
        os.fsync(handle.fileno())
    temporary.replace(path)
