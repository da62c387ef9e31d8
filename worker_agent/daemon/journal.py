"""What runs here, on disk: one folder per replica attempt, so a new agent finds what an earlier one left.

`DATA/replicas/<replica>-<attempt>/` holds the launch as it came (`launch.json`), the plan, the spool and everything of
the shim. A folder without a launch stands for a stop that came first.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

from worker_agent.daemon.core import ReplicaKey, ReplicaRestored, key_of
from worker_agent.machine.files import read_json, write_atomically, write_json
from worker_agent.protocol.checkpoint import Restore
from worker_agent.protocol.codec import encode_plan
from worker_agent.protocol.commands import Launch
from worker_agent.protocol.plan import Plan, plan_in
from worker_agent.replica.folder import PLAN_FILE, find_exit
from worker_agent.replica.lease import LEASE_FILE

_LAUNCH_FILE = "launch.json"
_INSTALLED_FILE = "installed"
_UPLOADED_FILE = "uploaded"
_PARTS = ("code", "spool", "artifacts", "scratch")


class Journal:
    """The replicas' folders below one data folder. `notify` is the agent's datagram socket, for the plans."""

    def __init__(self, data: Path, *, notify: str) -> None:
        self._environments = data / "environments"
        self._checkpoints = data / "checkpoints"
        self._root = data / "replicas"
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._notify = notify
        self.lease = data / LEASE_FILE

    def folder(self, key: ReplicaKey) -> Path:
        """Where everything of a replica is."""
        return self._root / f"{key.replica_id}-{key.attempt}"

    def spool(self, key: ReplicaKey) -> Path:
        """Where its streams are."""
        return self.folder(key) / "spool"

    def checkpoints(self, launch: Launch) -> Path:
        """Where the processes of one attempt on this node have their checkpoints, if its cluster shares no folder: the
        one that leads writes them, an evaluator reads them."""
        return self._checkpoints / f"{launch.job_id}-{launch.attempt}"

    def fetched(self, restore: Restore) -> Path:
        """Where a checkpoint lies that was fetched from the control plane."""
        return self._checkpoints / "fetched" / restore.sha256 / restore.name

    def record(self, launch: Launch) -> None:
        """Remember a launch before it is acknowledged."""
        folder = self.folder(key_of(launch))
        for part in _PARTS:
            (folder / part).mkdir(parents=True, exist_ok=True, mode=0o700)
        write_json(folder / _LAUNCH_FILE, launch)

    def write_plan(self, launch: Launch) -> tuple[Plan, Path]:
        """The plan of a launch, and the file that shim and trainer read it from."""
        folder = self.folder(key_of(launch))
        restore = launch.restore
        plan = plan_in(
            folder,
            launch,
            notify=self._notify,
            checkpoints=launch.checkpoints or str(self.checkpoints(launch)),
            restore=(restore.folder or str(self.fetched(restore))) if restore else "",
            environments=str(self._environments),
            lease=str(self.lease),
        )
        write_atomically(folder / PLAN_FILE, encode_plan(plan))
        return plan, folder / PLAN_FILE

    def mark_installed(self, key: ReplicaKey) -> None:
        """Remember when the program lay there and nothing of it had begun: what is newer, it has written."""
        (self.folder(key) / _INSTALLED_FILE).write_bytes(b"")

    def installed_at_ns(self, key: ReplicaKey) -> int | None:
        """When that was, by the clock of its disk; None before."""
        try:
            return (self.folder(key) / _INSTALLED_FILE).stat().st_ctime_ns
        except OSError:
            return None

    def mark_uploaded(self, key: ReplicaKey) -> None:
        """Remember that nothing of it has to be delivered any more."""
        (self.folder(key) / _UPLOADED_FILE).touch()

    def remove(self, key: ReplicaKey) -> None:
        """Delete everything of a replica, and with the last of an attempt the attempt's checkpoints."""
        launch = _read_launch(self.folder(key))
        shutil.rmtree(self.folder(key), ignore_errors=True)
        if launch is not None and self.checkpoints(launch).is_dir():
            others = filter(None, map(_read_launch, self._root.glob(f"*-{launch.attempt}")))
            if all(other.job_id != launch.job_id for other in others):
                shutil.rmtree(self.checkpoints(launch), ignore_errors=True)

    def restore(self) -> Iterator[ReplicaRestored]:
        """Every replica an earlier agent left here."""
        for folder in sorted(self._root.iterdir()):
            replica_id, _, attempt = folder.name.partition("-")
            if not (replica_id.isdecimal() and attempt.isdecimal()):
                continue
            key = ReplicaKey(int(replica_id), int(attempt))
            launch = _read_launch(folder)
            has_ended = find_exit(folder / "spool") is not None
            if launch is None and not has_ended:
                self.remove(key)  # cut off while it was written; the command was not acknowledged
                continue
            is_uploaded = (folder / _UPLOADED_FILE).exists()
            yield ReplicaRestored(key=key, launch=launch, has_ended=has_ended, is_uploaded=is_uploaded)


def _read_launch(folder: Path) -> Launch | None:
    return read_json(folder / _LAUNCH_FILE, Launch)
