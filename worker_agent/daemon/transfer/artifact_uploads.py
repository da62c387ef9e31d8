"""Artifacts on their way up: what a training left for its owner, delivered file by file until it is taken.

One thread, one replica after the other, with patience: the files stay on the node's disk until then, so an agent that
restarts simply begins again.
"""

import json
import math
import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path

import structlog

from worker_agent.daemon.control_plane import ControlPlane, Rejected, Unreachable
from worker_agent.daemon.core import ReplicaKey

METRICS_FILE = "metrics.json"

_METRICS_CHARS_MAX = 4096
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 60.0

log = structlog.get_logger("uploads")


class ArtifactUploads:
    """Delivers the artifacts of ended replicas, then calls `done(key)`."""

    def __init__(self, control_plane: ControlPlane, done: Callable[[ReplicaKey], None]) -> None:
        self._control_plane = control_plane
        self._done = done
        self._deliveries: queue.SimpleQueue[tuple[ReplicaKey, Path] | None] = queue.SimpleQueue()
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="uploads", daemon=True).start()

    def add(self, key: ReplicaKey, folder: Path) -> None:
        """Deliver everything below `folder`."""
        self._deliveries.put((key, folder))

    def close(self) -> None:
        """Stop after the request in progress; what was not delivered is journalled by being there."""
        self._closed.set()
        self._deliveries.put(None)

    def _run(self) -> None:
        for key, folder in iter(self._deliveries.get, None):
            try:
                files = files_of(folder)
            except (OSError, RecursionError):
                log.exception("artifacts cannot be listed, they stay on the disk", replica=key.replica_id)
                continue
            if all(self._deliver(key, folder, file) for file in files):
                self._done(key)

    def _deliver(self, key: ReplicaKey, folder: Path, file: Path) -> bool:
        """Whether one file is settled: taken, or refused for good. False only when the agent is leaving."""
        pause_s = _FIRST_PAUSE_S
        name = artifact_name(folder, file)
        said = log.bind(replica=key.replica_id, name=name)
        while not self._closed.is_set():
            try:
                self._control_plane.upload_artifact(
                    file, name=name, replica_id=key.replica_id, attempt=key.attempt, metrics=metrics_of(folder)
                )
            except (Rejected, Unreachable) as error:
                if isinstance(error, Rejected) and not error.may_pass:
                    said.warning("artifact refused", reason=str(error))
                    return True
                said.info("artifact waits", reason=str(error))
                self._closed.wait(pause_s)
                pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)
            except Exception as error:  # whatever a program has left here, the other files and replicas go on
                said.warning("artifact unreadable", reason=str(error))
                return True
            else:
                return True
        return False


def files_of(folder: Path) -> list[Path]:
    """The plain files to deliver, never through a link to somewhere else."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]
    return [path for path in found if path.resolve().is_relative_to(folder.resolve())]


def artifact_name(folder: Path, file: Path) -> str:
    """A file's name for its owner; of a file in a sub-folder, the path with "-" for "/". Bytes that are no text are
    shown as such."""
    return os.fsencode("-".join(file.relative_to(folder).parts)).decode(errors="replace")


def metrics_of(folder: Path) -> str:
    """`metrics.json` on one line with words for NaN and infinity; "" when there is none that could be used."""
    try:
        metrics = json.loads((folder / METRICS_FILE).read_text())
    except (OSError, ValueError, RecursionError):
        return ""
    if not isinstance(metrics, dict):
        return ""
    text = json.dumps({name: _without_nan(value) for name, value in metrics.items()})
    return text if len(text) <= _METRICS_CHARS_MAX else ""


def _without_nan(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
