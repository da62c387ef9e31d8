"""Checkpoints between node and control plane, for clusters whose nodes share no folder: each complete one up while the
training goes on, and the one that a gang begins with down, before it starts.
"""

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import structlog

from worker_agent.daemon.control_plane import ControlPlane, Rejected, Unreachable, patiently
from worker_agent.daemon.core import ReplicaKey
from worker_agent.machine.files import remove_unused
from worker_agent.protocol.checkpoint import MARKER, Marker, Restore, is_name, order_of, problem_of
from worker_agent.replica.checkpoint_folder import MARKER_BYTES_MAX, is_whole, open_plain, read_marker, remove

POLL_S = 1.0
KEPT_S = 86_400.0

_OUTGOING = ".outgoing"
_SENT = ".sent"
# Offered, sent, offered again: complete. Once more where something did not arrive whole.
_OFFERS = 3
_LONGEST_PAUSE_S = 60.0

log = structlog.get_logger("checkpoints")


class CheckpointCache:
    """Checkpoints fetched from the control plane, each once for all replicas that begin with it."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self._control_plane = control_plane
        self._locks: dict[str, threading.Lock] = {}

    def fetch(self, restore: Restore, folder: Path, *, wait: Callable[[float], bool]) -> None:
        """Have it complete in `folder`; raises `NotFetched`. `wait(s)` pauses, and is true when nobody waits now."""
        with self._locks.setdefault(restore.sha256, threading.Lock()):
            if (marker := read_marker(folder)) is not None and is_whole(folder, marker):
                os.utime(folder.parent)
                return
            remove_unused(folder.parent.parent, after_s=KEPT_S)
            remove(folder)
            folder.mkdir(parents=True, mode=0o700)
            patiently(lambda: self._download(restore, folder), what="checkpoint", wait=wait)

    def _download(self, restore: Restore, folder: Path) -> None:
        """The marker first, but under its name last: only then is the checkpoint complete."""
        described = folder / f".{MARKER}"
        self._control_plane.download_checkpoint(
            restore.checkpoint_id, MARKER, described, sha256=restore.sha256, size_max=MARKER_BYTES_MAX
        )
        marker = msgspec.json.decode(described.read_bytes(), type=Marker)
        if problem := problem_of(marker):
            raise Rejected(200, f"{problem}.")
        for name, part in marker.files.items():
            if not (folder / name).exists():
                self._control_plane.download_checkpoint(
                    restore.checkpoint_id, name, folder / name, sha256=part.sha256, size_max=part.size_bytes
                )
        described.replace(folder / MARKER)


class CheckpointUploads:
    """One thread that brings what leading processes write to the control plane, newest first, with patience.

    A complete checkpoint is linked aside at first sight, so that the training may drop it meanwhile; an older one that
    it has dropped is not sent any more, so that a slow line does not fall behind without end. What is sent is
    remembered on disk; an agent that restarts goes on with the rest. `done(key)` is called for a replica that has
    ended (`finish`) when nothing of it is left to send.
    """

    def __init__(self, control_plane: ControlPlane, done: Callable[[ReplicaKey], None]) -> None:
        self._control_plane = control_plane
        self._done = done
        self._folders: dict[ReplicaKey, Path | None] = {}
        self._ended: set[ReplicaKey] = set()
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._closed = threading.Event()
        self._pause_s = POLL_S
        threading.Thread(target=self._run, name="checkpoints", daemon=True).start()

    def follow(self, key: ReplicaKey, folder: Path) -> None:
        """From now on, send what appears in `folder`."""
        with self._lock:
            self._folders[key] = folder
        self._changed.set()

    def finish(self, key: ReplicaKey) -> None:
        """The replica has ended: send what is left, then say so."""
        with self._lock:
            self._folders.setdefault(key, None)
            self._ended.add(key)
        self._changed.set()

    def close(self) -> None:
        """Stop after the request in progress."""
        self._closed.set()
        self._changed.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            self._changed.wait(self._pause_s if self._folders else None)
            self._changed.clear()
            with self._lock:
                ended, folders = set(self._ended), dict(self._folders)
            is_well = True
            for key, folder in folders.items():
                is_settled = folder is None or self._send_all(key, folder)
                is_well &= is_settled
                if key in ended and is_settled:
                    with self._lock:
                        self._ended.discard(key)
                        del self._folders[key]
                    self._done(key)
            self._pause_s = POLL_S if is_well else min(_LONGEST_PAUSE_S, self._pause_s * 2)

    def _send_all(self, key: ReplicaKey, folder: Path) -> bool:
        """Whether everything complete in the folder is settled: taken, or refused for good."""
        try:
            while (checkpoint := _newest_outgoing(folder)) is not None:
                if self._closed.is_set():
                    return False
                self._send(key, checkpoint)
                (folder / _SENT).mkdir(exist_ok=True)
                (folder / _SENT / checkpoint.name).touch()
                shutil.rmtree(checkpoint, ignore_errors=True)
        except (Unreachable, OSError) as error:
            log.info("checkpoints wait", replica=key.replica_id, reason=str(error))
            return False
        return True

    def _send(self, key: ReplicaKey, checkpoint: Path) -> None:
        """Raises `Unreachable` for what may pass; a refusal is told and settled."""
        plane, name = self._control_plane, checkpoint.name
        try:
            with open_plain(checkpoint / MARKER) as file:
                marker = file.read(MARKER_BYTES_MAX)
            for _ in range(_OFFERS):
                missing = plane.offer_checkpoint(marker, name=name, replica_id=key.replica_id, attempt=key.attempt)
                if not missing:
                    return
                for part in missing:
                    plane.upload_checkpoint(checkpoint / part, replica_id=key.replica_id, attempt=key.attempt)
            log.warning("checkpoint not taken", replica=key.replica_id, name=name)
        except OSError as error:  # a file that is a link or has vanished: what a program does to its own checkpoints
            log.warning("checkpoint unreadable", replica=key.replica_id, name=name, reason=str(error))
        except Rejected as error:
            if error.may_pass:
                raise Unreachable(str(error)) from error
            log.warning("checkpoint refused", replica=key.replica_id, name=name, reason=str(error))


def _newest_outgoing(folder: Path) -> Path | None:
    """The newest checkpoint that is still to be sent, as a folder of its own that nobody else changes. Older ones that
    the training has dropped are dropped here as well."""
    if not folder.is_dir():
        return None
    aside = folder / _OUTGOING
    there = {path.name for path in folder.iterdir() if is_name(path.name)}
    for name in there:
        if not (folder / _SENT / name).exists() and not (aside / name).exists():
            _link_aside(folder / name, aside)
    linked = {path.name for path in aside.iterdir() if is_name(path.name)} if aside.is_dir() else set()
    unsent = {name for name in linked if not (folder / _SENT / name).exists()}
    newest = max(unsent, key=order_of, default="")
    for name in linked - {newest} - (unsent & there):
        shutil.rmtree(aside / name, ignore_errors=True)
    return aside / newest if newest else None


def _link_aside(checkpoint: Path, aside: Path) -> None:
    """Hard links, so that it costs nothing; under its name only when all files are there."""
    marker = read_marker(checkpoint)
    if marker is None:
        return
    partial = aside / f".{checkpoint.name}"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True, mode=0o700)
    try:
        for name in (*marker.files, MARKER):
            os.link(checkpoint / name, partial / name, follow_symlinks=False)
        partial.replace(aside / checkpoint.name)
    except FileNotFoundError:  # the training has dropped it just now
        shutil.rmtree(partial, ignore_errors=True)
