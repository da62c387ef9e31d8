"""What ended replicas could not give back, looked at again with every heartbeat until it is gone.

Kept on disk, because the folder of such a replica may be forgotten and the agent started anew before that. The control
plane uses the device again when it hears that all is gone; that is repeated for a while, in case a heartbeat is lost.
"""

import contextlib
import threading
from pathlib import Path

import msgspec

from worker_agent.daemon.core import Key
from worker_agent.machine import cgroup
from worker_agent.machine.processes import kill, read_stat
from worker_agent.protocol.records import LeftKind
from worker_agent.protocol.reports import Remains
from worker_agent.replica.cleanup import Remnant, is_there, read_left
from worker_agent.replica.folder import write_atomically

TOLD_S = 600.0

_FILE = "remains.json"


class _Kept(msgspec.Struct, kw_only=True):
    """One replica's. `gone_at` is on the monotonic clock; not kept across agents, so the next one tells it again."""

    replica_id: int
    attempt: int
    found: list[Remnant]
    group: str
    gone_at: float | None = None


class LeftBehind:
    """All of this node's. Called by the deciding thread and by that of the heartbeat."""

    def __init__(self, data: Path) -> None:
        self._path = data / _FILE
        self._lock = threading.Lock()
        self._kept: list[_Kept] = []
        with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
            self._kept = [
                msgspec.structs.replace(each, gone_at=None)
                for each in msgspec.json.decode(self._path.read_bytes(), type=list[_Kept])
            ]

    def add(self, key: Key, folder: Path) -> None:
        """A replica has ended; what it left is in its folder, if it left anything."""
        left = read_left(folder)
        with self._lock:
            known = any((each.replica_id, each.attempt) == key for each in self._kept)
            if left is not None and not known:
                self._kept.append(
                    _Kept(replica_id=key.replica_id, attempt=key.attempt, found=left.found, group=left.group)
                )
                self._save()

    def look(self, *, now: float) -> list[Remains]:
        """What of it still is there; `now` is monotonic. Processes that may be ended are told to end again."""
        with self._lock:
            before = [(each.found, each.gone_at) for each in self._kept]
            for each in self._kept:
                _look_again(each, now)
            self._kept = [each for each in self._kept if each.gone_at is None or now - each.gone_at < TOLD_S]
            if before != [(each.found, each.gone_at) for each in self._kept]:
                with contextlib.suppress(OSError):  # a full disk: what was seen is told all the same
                    self._save()
            return [
                Remains(
                    replica_id=each.replica_id,
                    attempt=each.attempt,
                    left=[remnant.left for remnant in each.found],
                )
                for each in self._kept
            ]

    def _save(self) -> None:
        write_atomically(self._path, msgspec.json.encode(self._kept))


def _look_again(kept: _Kept, now: float) -> None:
    if kept.gone_at is not None:
        return
    cgroup.kill(kept.group)
    kept.found = [remnant for remnant in kept.found if is_there(remnant)]
    for remnant in kept.found:
        if remnant.process is not None and remnant.left.kind is LeftKind.PROCESS:
            row = read_stat(remnant.process.pid)
            kill([row] if row is not None and row.start_time == remnant.process.start_time else [])
    if not kept.found:
        cgroup.remove(kept.group)
        kept.gone_at = now
