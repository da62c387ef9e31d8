"""Which zip archives are taken as a user's program: one rule for the upload and for the node that unpacks it.

Called by the control plane when a program comes in and by the agent before it unpacks. An archive may hold anything, so
names, kinds, count, size and compression ratio are checked before a byte is unpacked, and bytes are counted meanwhile.
"""

import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import BinaryIO

PROGRAM_BYTES_MAX = 100_000_000
"""The largest program, as it is sent and again unpacked. `TRAINYARD_MAX_CODE_BYTES` may only be less."""
MEMBERS_MAX = 1_000
NAME_BYTES_MAX = 200
RATIO_MAX = 200
RATIO_FREE_BYTES = 1_000_000

_CHUNK_BYTES = 256 * 1024
_PLAIN_KINDS = (0, stat.S_IFREG, stat.S_IFDIR)
_PLAIN_PACKING = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1
_BROKEN = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, ValueError, OSError)


class ArchiveRefused(Exception):
    """The archive must not be unpacked, or cannot be: the message is a sentence that says why."""


@contextmanager
def opened(source: Path | BinaryIO) -> Iterator[zipfile.ZipFile]:
    """The archive, checked as far as it describes itself; whatever fails in the block is `ArchiveRefused` too."""
    try:
        with zipfile.ZipFile(source) as archive:
            _check(archive.infolist())
            yield archive
    except _BROKEN as error:
        raise ArchiveRefused(f"The archive cannot be unpacked: {error}.") from error


def chunks(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Iterator[bytes]:
    """The content of one member, never more than it declares; a wrong size or checksum raises at the end."""
    size_bytes = 0
    with archive.open(member) as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            size_bytes += len(chunk)
            if size_bytes > member.file_size:
                raise ArchiveRefused(f"{_shown(member.filename)} is larger than the archive says.")
            yield chunk
    if size_bytes < member.file_size:
        raise ArchiveRefused(f"{_shown(member.filename)} is smaller than the archive says.")


def safe_parts(name: str) -> tuple[str, ...]:
    """The parts of a relative path that stays inside its folder; raises `ArchiveRefused` for any other."""
    path = PurePosixPath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name:
        raise ArchiveRefused(f"{_shown(name)} is not the name of a file inside the program's folder.")
    if not name.isprintable():
        raise ArchiveRefused(f"{_shown(name)} has characters in its name that cannot be shown.")
    if len(name.encode()) > NAME_BYTES_MAX:
        raise ArchiveRefused(f"The file name {name[:40]!r}… is longer than {NAME_BYTES_MAX} bytes.")
    return path.parts


def _check(members: list[zipfile.ZipInfo]) -> None:
    """What the archive says of itself; `chunks` does not rely on it."""
    if len(members) > MEMBERS_MAX:
        raise ArchiveRefused(f"The archive holds {len(members)} files; at most {MEMBERS_MAX} are allowed.")
    if sum(member.file_size for member in members) > PROGRAM_BYTES_MAX:
        raise ArchiveRefused(f"The archive is larger than {PROGRAM_BYTES_MAX // 1_000_000} MB unpacked.")
    for member in members:
        _check_member(member)
    _check_places(members)


def _check_member(member: zipfile.ZipInfo) -> None:
    safe_parts(member.filename)
    name = _shown(member.filename)
    if stat.S_IFMT(member.external_attr >> 16) not in _PLAIN_KINDS:
        raise ArchiveRefused(f"{name} is a link or a special file; only plain files are allowed.")
    if member.compress_type not in _PLAIN_PACKING:
        raise ArchiveRefused(f"{name} has an unknown compression: use plain zip (deflate).")
    if member.flag_bits & _ENCRYPTED:
        raise ArchiveRefused(f"{name} is encrypted.")
    if member.file_size > max(RATIO_FREE_BYTES, RATIO_MAX * member.compress_size):
        raise ArchiveRefused(f"{name} is packed to less than 1/{RATIO_MAX} of its size: this looks like a zip bomb.")


def _check_places(members: list[zipfile.ZipInfo]) -> None:
    """Every file needs a place of its own, on disks too that do not tell upper from lower case."""
    folders: set[PurePosixPath] = set()
    files: set[PurePosixPath] = set()
    for member in members:
        place = PurePosixPath(member.filename.casefold())
        folders.update(place.parents)
        if member.is_dir():
            folders.add(place)
        elif place in files:
            raise ArchiveRefused(f"{_shown(member.filename)} is in the archive twice.")
        else:
            files.add(place)
    for member in members:
        if PurePosixPath(member.filename.casefold()) in files & folders:
            raise ArchiveRefused(f"{_shown(member.filename)} is both a file and a folder in the archive.")


def _shown(name: str) -> str:
    return repr(name[:NAME_BYTES_MAX])
