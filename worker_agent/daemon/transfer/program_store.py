"""The user's program on the node: fetched once by content, unpacked afresh for every replica, trusted in nothing.

What an archive may hold is said in `protocol/job/archive.py`; it is checked here again, before and while it is
unpacked. Called by `replica_runner.py` and `probes/`; every refusal is a sentence for the job's owner.
"""

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

from worker_agent.daemon.control_plane import ControlPlane, NotFetched, patiently
from worker_agent.machine.files import remove_unused
from worker_agent.protocol.job.archive import ArchiveRefused, chunks, opened, safe_parts
from worker_agent.protocol.job.job_spec import CodeRef

KEPT_S = 30 * 86_400.0


class ProgramStore:
    """Programs by digest, below one data folder. Used by several threads."""

    def __init__(self, data: Path, control_plane: ControlPlane) -> None:
        self._root = data / "code"
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._control_plane = control_plane
        self._locks: dict[str, threading.Lock] = {}

    def install(self, code: CodeRef, folder: Path, *, wait: Callable[[float], bool]) -> None:
        """Put the program into `folder`, emptied before; raises `NotFetched` or `ArchiveRefused`. `wait(s)` pauses, and
        is true when nobody waits any more."""
        if len(code.sha256) != 64 or not set(code.sha256) <= set("0123456789abcdef"):
            raise NotFetched("The job names its code by something that is not a SHA-256 digest.")
        target = folder.joinpath(*safe_parts(code.entry))
        blob = self._root / code.sha256
        with self._locks.setdefault(code.sha256, threading.Lock()):
            if blob.exists():
                os.utime(blob)
            else:
                remove_unused(self._root, after_s=KEPT_S)
                patiently(lambda: self._control_plane.download_code(code.sha256, blob), what="code", wait=wait)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, mode=0o700)
        if code.archive:
            unpack(blob, folder)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(blob, target)
        if not target.is_file():
            raise ArchiveRefused(f"The archive has no file {code.entry!r}, which is to be run.")


def unpack(archive: Path, folder: Path) -> None:
    """Extract a zip archive into an empty folder; raises `ArchiveRefused` for anything but plain files in it."""
    with opened(archive) as content:
        for member in content.infolist():
            target = folder.joinpath(*safe_parts(member.filename))
            if member.is_dir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as out:
                for chunk in chunks(content, member):
                    out.write(chunk)
