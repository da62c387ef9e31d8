"""What a program has left in a folder, as far as it may be taken: found and opened without following a link.

The program is hostile, and may go on while its folder is looked at: every folder is opened below the one before it, a
file is opened as what was found or not at all, and what is no plain file of one name is only told of.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from worker_agent.protocol.files import NAME_BYTES_MAX, PART_BYTES_MAX, NotKept

ENTRIES_MAX = 50_000
DEPTH_MAX = 20

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A pipe is opened without waiting for its other end.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_HASH_BYTES = 1 << 20

# Device, inode, size, last change of the content and of anything.
Stamp = tuple[int, int, int, int, int]


class Changed(Exception):
    """The file is not, or not any more, what was found."""


@dataclass(frozen=True)
class Found:
    """A file below `folder`: `parts` as on the disk, `name` as people read it. `problem` is why it cannot be taken."""

    folder: Path
    parts: tuple[str, ...]
    name: str
    stamp: Stamp
    problem: NotKept | None = None

    @property
    def size_bytes(self) -> int:
        """Its size when it was found."""
        return self.stamp[2]

    @property
    def told_name(self) -> str:
        """Its name, or the end of one that is too long to travel."""
        name = self.name
        while len(name.encode()) > NAME_BYTES_MAX:
            name = "\N{HORIZONTAL ELLIPSIS}/" + name.removeprefix("\N{HORIZONTAL ELLIPSIS}/").partition("/")[2]
        return name


def files_below(folder: Path, *, is_wanted: Callable[[str], bool], since_ns: int = 0) -> list[Found]:
    """The files in and below `folder` that were written after `since_ns`, the smallest first; those that are not wanted
    by name are only told of.

    Hidden files and folders, and what Python compiles, are the program's own affair. Of a folder with more than
    `ENTRIES_MAX` entries, a part.
    """
    found = []
    for parts, status in _walk(folder):
        name = _shown(parts)
        if status.st_ctime_ns > since_ns:
            problem = _problem(name, status) if is_wanted(name) else NotKept.UNASKED
            found.append(Found(folder, parts, name, _stamp(status), problem))
    return sorted(found, key=lambda each: (each.size_bytes, each.name))


@contextmanager
def opened(file: Found) -> Iterator[BinaryIO]:
    """The file that was found, to read; raises `Changed` for anything else in its place, and `OSError`."""
    folder = os.open(file.folder, _FOLDER)
    try:
        for part in file.parts[:-1]:
            folder, above = os.open(part, _FOLDER, dir_fd=folder), folder
            os.close(above)
        descriptor = os.open(file.parts[-1], _FILE, dir_fd=folder)
    finally:
        os.close(folder)
    with os.fdopen(descriptor, "rb") as content:
        if _stamp(os.fstat(descriptor)) != file.stamp:
            raise Changed(file.name)
        yield content


def digest_of(content: BinaryIO, size_bytes: int) -> str:
    """The SHA-256 of the first `size_bytes`; raises `Changed` where there are fewer."""
    digest = hashlib.sha256()
    for piece in _pieces(content, size_bytes):
        digest.update(piece)
    return digest.hexdigest()


def pieces_of(content: BinaryIO, *, size_bytes: int, sha256: str) -> Iterator[bytes]:
    """The first `size_bytes` once more, to be sent: raises `Changed`, in place of the last piece, if they are not those
    of that digest any more."""
    digest = hashlib.sha256()
    content.seek(0)
    last = b""
    for piece in _pieces(content, size_bytes):
        digest.update(piece)
        if last:
            yield last
        last = piece
    if digest.hexdigest() != sha256:
        raise Changed
    if last:
        yield last


def _pieces(content: BinaryIO, size_bytes: int) -> Iterator[bytes]:
    left = size_bytes
    while left:
        piece = content.read(min(left, _HASH_BYTES))
        if not piece:
            raise Changed
        left -= len(piece)
        yield piece


def _walk(folder: Path) -> Iterator[tuple[tuple[str, ...], os.stat_result]]:
    """Everything below that is no folder, with its status; folders that cannot be opened are passed over."""
    left = ENTRIES_MAX
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        parts = waiting.pop()
        try:
            descriptor = _open_folder(folder, parts)
        except OSError:
            continue
        try:
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    if not left:
                        return
                    left -= 1
                    if entry.name.startswith(".") or entry.name == "__pycache__":
                        continue
                    try:
                        status = entry.stat(follow_symlinks=False)
                    except OSError:
                        continue
                    if not stat.S_ISDIR(status.st_mode):
                        yield (*parts, entry.name), status
                    elif len(parts) < DEPTH_MAX:
                        waiting.append((*parts, entry.name))
        finally:
            os.close(descriptor)


def _open_folder(folder: Path, parts: tuple[str, ...]) -> int:
    descriptor = os.open(folder, _FOLDER)
    try:
        for part in parts:
            descriptor, above = os.open(part, _FOLDER, dir_fd=descriptor), descriptor
            os.close(above)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _problem(name: str, status: os.stat_result) -> NotKept | None:
    if stat.S_ISLNK(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_nlink != 1):
        return NotKept.LINK
    if not stat.S_ISREG(status.st_mode):
        return NotKept.SPECIAL
    return NotKept.NAME if len(name.encode()) > NAME_BYTES_MAX else None


def _stamp(status: os.stat_result) -> Stamp:
    is_plain = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
    return (
        status.st_dev if is_plain else -1,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def _shown(parts: tuple[str, ...]) -> str:
    """The path as it travels. A part with characters that cannot be printed, or that is too long, says so with a
    number, so that no two files become one."""
    return "/".join(map(_shown_part, parts))


def _shown_part(part: str) -> str:
    raw = os.fsencode(part)
    whole = raw.decode(errors="replace")
    text = "".join(each if each.isprintable() and each != "\\" else "\N{REPLACEMENT CHARACTER}" for each in whole)
    if text == part and len(raw) <= PART_BYTES_MAX:
        return text
    stem, dot, suffix = text.rpartition(".") if "." in text[1:] else (text, "", "")
    mark = hashlib.sha256(raw).hexdigest()[:6]
    stem, suffix = (
        cut.encode()[:most].decode(errors="ignore") for cut, most in ((stem, PART_BYTES_MAX - 40), (suffix, 30))
    )
    return f"{stem}-{mark}{dot}{suffix}"
