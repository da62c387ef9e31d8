"""Checkpoints on disk: which are complete, whether their files are what their marker says, and dropping old ones.

Used by the trainer, which writes and reads them, and by the agent, which carries them to and from the control plane.
"""

import contextlib
import hashlib
import os
import shutil
from collections.abc import Container
from io import BufferedReader
from pathlib import Path

import msgspec

from worker_agent.machine.files import sync_folder
from worker_agent.protocol.checkpoint import MARKER, Candidate, Marker, Part, is_name, kept_of, order_of, problem_of

MARKER_BYTES_MAX = 16_000_000


def complete_in(folder: Path) -> dict[str, Marker]:
    """The complete checkpoints below `folder`, oldest first. Those with a file missing or too short are left out."""
    with contextlib.suppress(OSError):
        markers = [(path, read_marker(path)) for path in folder.iterdir() if is_name(path.name)]
        sound = [marker for path, marker in markers if marker is not None and _has_its_files(path, marker)]
        return {each.name: each for each in sorted(sound, key=lambda each: order_of(each.name))}
    return {}


def read_marker(checkpoint: Path) -> Marker | None:
    """The marker of one checkpoint; None where it is not complete."""
    try:
        with open_plain(checkpoint / MARKER) as file:
            marker = msgspec.json.decode(file.read(MARKER_BYTES_MAX), type=Marker)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return marker if marker.name == checkpoint.name and not problem_of(marker) else None


def is_whole(checkpoint: Path, marker: Marker) -> bool:
    """Whether every file has the content that the marker says; reads them all."""
    try:
        return all(digest_of(checkpoint / name) == part.sha256 for name, part in marker.files.items())
    except OSError:
        return False


def parts_of(checkpoint: Path) -> dict[str, Part]:
    """What a marker says of the files in the folder, which are brought to the platter first."""
    parts = {}
    for path in sorted(path for path in checkpoint.iterdir() if path.is_file()):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            parts[path.name] = Part(
                sha256=hashlib.file_digest(file, "sha256").hexdigest(), size_bytes=os.fstat(file.fileno()).st_size
            )
    return parts


def write_marker(checkpoint: Path, marker: Marker) -> str:
    """Make the checkpoint complete: the last step, and an atomic one. The marker's SHA-256."""
    data = msgspec.json.format(msgspec.json.encode(marker), indent=1)
    partial = checkpoint / f".{MARKER}"
    with partial.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(checkpoint / MARKER)
    for folder in (checkpoint, checkpoint.parent):
        sync_folder(folder)
    return hashlib.sha256(data).hexdigest()


def digest_of(path: Path) -> str:
    """The SHA-256 of a plain file; raises OSError for a link too."""
    with open_plain(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def open_plain(path: Path) -> BufferedReader:
    """Read a file, never through a link: a program of the user's has written the folder."""
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")


def kept_in(folder: Path, *, keep: int) -> set[str]:
    """The names of those complete checkpoints that count: the last `keep`, and the best."""
    candidates = [Candidate(m.name, m.attempt, m.step, m.metrics) for m in complete_in(folder).values()]
    return kept_of(candidates, keep=keep)


def prune(folder: Path, *, spare: Container[str], attempt: int) -> None:
    """Drop all complete checkpoints but those, and what a process that was killed had begun to write; nothing of a
    later attempt than this one, which may be at work already."""
    for name in [*complete_in(folder), *_begun_in(folder)]:
        if name not in spare and order_of(name)[0] <= attempt:
            remove(folder / name)


def remove(checkpoint: Path) -> None:
    """Delete a checkpoint, its marker first, so that what is cut off here is incomplete."""
    with contextlib.suppress(OSError):
        (checkpoint / MARKER).unlink(missing_ok=True)
    shutil.rmtree(checkpoint, ignore_errors=True)


def _begun_in(folder: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return [path.name for path in folder.iterdir() if is_name(path.name) and not (path / MARKER).exists()]
    return []


def _has_its_files(checkpoint: Path, marker: Marker) -> bool:
    with contextlib.suppress(OSError):
        return all((checkpoint / name).stat().st_size == part.size_bytes for name, part in marker.files.items())
    return False
