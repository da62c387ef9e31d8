"""The user's program on the node: fetched once by content, unpacked afresh for every replica, trusted in nothing.

An archive may hold anything, so names, kinds, count, size and compression ratio are checked before a byte is written.
Called by the supervisor; every refusal is a sentence for the job's owner.
"""

import contextlib
import os
import random
import shutil
import stat
import threading
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from worker_agent.daemon.control_plane import ControlPlane, Rejected, Unreachable
from worker_agent.protocol.job_spec import CodeRef

FILES_MAX = 5_000
FILE_BYTES_MAX = 256 * 1024 * 1024
TOTAL_BYTES_MAX = 512 * 1024 * 1024
RATIO_MAX = 200
RATIO_FREE_BYTES = 1024 * 1024
NAME_CHARS_MAX = 200
KEPT_S = 30 * 86_400.0

_FETCH_S = 60.0
_CHUNK_BYTES = 256 * 1024


class CodeRefused(Exception):
    """The program cannot be had, or must not be unpacked: the message says why."""


class CodeStore:
    """Programs by digest, below one data folder. Used by several threads."""

    def __init__(self, data: Path, control_plane: ControlPlane) -> None:
        self._root = data / "code"
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._control_plane = control_plane
        self._locks: dict[str, threading.Lock] = {}

    def install(self, code: CodeRef, folder: Path, *, wait: Callable[[float], bool]) -> None:
        """Put the program into `folder`, emptied before. `wait(s)` pauses, and is true when nobody waits any more."""
        if len(code.sha256) != 64 or not set(code.sha256) <= set("0123456789abcdef"):
            raise CodeRefused("The job names its code by something that is not a SHA-256 digest.")
        entry = _safe_parts(code.entry)
        blob = self._root / code.sha256
        with self._locks.setdefault(code.sha256, threading.Lock()):
            if blob.exists():
                os.utime(blob)
            else:
                self._prune()
                self._fetch(code.sha256, blob, wait=wait)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, mode=0o700)
        if code.archive:
            unpack(blob, folder)
        else:
            target = folder.joinpath(*entry)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(blob, target)
        if not folder.joinpath(*entry).is_file():
            raise CodeRefused(f"The archive has no file {code.entry!r}, which is to be run.")

    def _prune(self) -> None:
        """Drop what no replica has used for long, and what a download that was cut off has left."""
        for path in self._root.iterdir():
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < time.time() - KEPT_S:
                    path.unlink()

    def _fetch(self, sha256: str, blob: Path, *, wait: Callable[[float], bool]) -> None:
        pause_s, waited_s = 0.1, 0.0
        while True:
            try:
                self._control_plane.download_code(sha256, blob)
            except Rejected as error:
                raise CodeRefused(f"The control plane did not give the code: {error}") from error
            except Unreachable as error:
                if waited_s >= _FETCH_S or wait(pause_s):
                    raise CodeRefused(f"The code could not be fetched from the control plane: {error}.") from error
                waited_s += pause_s
                pause_s = min(5.0, pause_s * 2) * random.uniform(0.8, 1.2)
            else:
                return


def unpack(archive: Path, folder: Path) -> None:
    """Extract a zip archive into an empty folder; raises `CodeRefused` for anything but plain files in it."""
    try:
        with zipfile.ZipFile(archive) as content:
            members = content.infolist()
            _check_sizes(members)
            for member in members:
                _extract(content, member, folder)
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError) as error:
        raise CodeRefused(f"The archive could not be unpacked: {error}.") from error


def _check_sizes(members: list[zipfile.ZipInfo]) -> None:
    """What the archive says of itself; `_extract` does not rely on it."""
    if len(members) > FILES_MAX:
        raise CodeRefused(f"The archive has {len(members)} files; at most {FILES_MAX} are taken.")
    total_bytes = sum(member.file_size for member in members)
    if total_bytes > TOTAL_BYTES_MAX:
        raise CodeRefused(
            f"The archive unpacks to {total_bytes // 2**20} MB; at most {TOTAL_BYTES_MAX // 2**20} MB are taken."
        )
    for member in members:
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise CodeRefused(f"{_shown(member)} is packed in a way that is not taken: use plain zip (deflate).")
        if member.file_size > max(RATIO_FREE_BYTES, RATIO_MAX * member.compress_size):
            raise CodeRefused(
                f"{_shown(member)} is packed to less than 1/{RATIO_MAX} of its size: this looks like a zip bomb."
            )


def _extract(content: zipfile.ZipFile, member: zipfile.ZipInfo, folder: Path) -> None:
    parts = _safe_parts(member.filename)
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise CodeRefused(f"{_shown(member)} is a link or a special file; only plain files are taken.")
    target = folder.joinpath(*parts)
    if member.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    written_bytes = 0
    with content.open(member) as source, target.open("xb") as out:
        while chunk := source.read(_CHUNK_BYTES):
            written_bytes += len(chunk)
            if written_bytes > min(member.file_size, FILE_BYTES_MAX):
                raise CodeRefused(f"{_shown(member)} is larger than the archive says, or than is taken.")
            out.write(chunk)


def _safe_parts(name: str) -> tuple[str, ...]:
    """The parts of a relative path that stays inside its folder."""
    path = PurePosixPath(name)
    windows = "\\" in name or (len(name) > 1 and name[1] == ":")
    if not path.parts or path.is_absolute() or ".." in path.parts or windows or "\0" in name:
        raise CodeRefused(f"{name[:NAME_CHARS_MAX]!r} is not the name of a file inside the program's folder.")
    if len(name) > NAME_CHARS_MAX:
        raise CodeRefused(f"The file name {name[:40]!r}… is longer than {NAME_CHARS_MAX} characters.")
    return path.parts


def _shown(member: zipfile.ZipInfo) -> str:
    return repr(member.filename[:NAME_CHARS_MAX])
