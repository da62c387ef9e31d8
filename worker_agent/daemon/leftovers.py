"""What ended replicas have not given back, looked at again with every heartbeat until it is gone.

Kept on disk, because the folder of such a replica may be forgotten and the agent started anew before that. The control
plane uses the device again when it hears that all is gone; that is repeated for a while, in case a heartbeat is lost.
"""

import contextlib
import signal
import threading
from pathlib import Path

import msgspec

from worker_agent.daemon.core import ReplicaKey
from worker_agent.machine import cgroup
from worker_agent.machine.files import read_json, write_json
from worker_agent.machine.processes import send_signal
from worker_agent.protocol.records import LeftoverKind
from worker_agent.protocol.reports import ReplicaLeftovers
from worker_agent.replica.leftovers import TrackedLeftover, is_still_there, read_leftovers

REPEATED_S = 600.0

_FILE = "remains.json"


class _Entry(msgspec.Struct, kw_only=True):
    """One replica's. `gone_at` is on the monotonic clock; not kept across agents, so the next one tells it again."""

    replica_id: int
    attempt: int
    found: list[TrackedLeftover]
    group: str
    gone_at: float | None = None


class Leftovers:
    """All of this node's. Called by the deciding thread and by that of the heartbeat."""

    def __init__(self, data: Path) -> None:
        self._path = data / _FILE
        self._lock = threading.Lock()
        kept = read_json(self._path, list[_Entry]) or []
        self._entries = [msgspec.structs.replace(entry, gone_at=None) for entry in kept]

    def add(self, key: ReplicaKey, folder: Path) -> None:
        """A replica has ended; what it left is in its folder, if it left anything."""
        left = read_leftovers(folder)
        with self._lock:
            is_known = any((entry.replica_id, entry.attempt) == key for entry in self._entries)
            if left is not None and not is_known:
                entry = _Entry(replica_id=key.replica_id, attempt=key.attempt, found=left.found, group=left.group)
                self._entries.append(entry)
                write_json(self._path, self._entries)

    def check(self, *, now: float) -> list[ReplicaLeftovers]:
        """What of it still is there; `now` is monotonic. Processes that may be ended are told to end again."""
        with self._lock:
            before = [(entry.found, entry.gone_at) for entry in self._entries]
            for entry in self._entries:
                _check(entry, now)
            self._entries = [each for each in self._entries if each.gone_at is None or now - each.gone_at < REPEATED_S]
            if before != [(entry.found, entry.gone_at) for entry in self._entries]:
                with contextlib.suppress(OSError):  # a full disk: what was seen is told all the same
                    write_json(self._path, self._entries)
            return [
                ReplicaLeftovers(
                    replica_id=entry.replica_id,
                    attempt=entry.attempt,
                    leftovers=[tracked.leftover for tracked in entry.found],
                )
                for entry in self._entries
            ]


def _check(entry: _Entry, now: float) -> None:
    if entry.gone_at is not None:
        return
    cgroup.kill(entry.group)
    entry.found = [tracked for tracked in entry.found if is_still_there(tracked)]
    for tracked in entry.found:
        if tracked.process is not None and tracked.leftover.kind is LeftoverKind.PROCESS:
            send_signal(tracked.process, signal.SIGKILL)
    if not entry.found:
        cgroup.remove(entry.group)
        entry.gone_at = now
