"""Small files that survive a power cut, readable by the agent's own user only; locks; and dropping old files."""

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")


def write_json(path: Path, value: object) -> None:
    """Replace a file by this value as JSON, as `write_atomically` does."""
    write_atomically(path, msgspec.json.encode(value))


def read_json(path: Path, kind: type[T]) -> T | None:
    """The value in a file; None when there is no file, or its content is damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file so that readers see the old or the new content, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(file, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Bring the names in a folder to the disk: a file that was synchronised can be found again only then."""
    folder = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock that is this file; the kernel lets it go when a holder dies. Somebody else's is waited for, or
    raises BlockingIOError."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(file)


def remove_unused(folder: Path, *, after_s: float) -> None:
    """Drop the files and folders in a folder that were not touched for so long."""
    for path in folder.glob("*"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < time.time() - after_s:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
