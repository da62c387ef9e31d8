"""When this node was last in touch with the control plane: the agent writes it down, every shim looks.

One line in one file of the agent's data folder (`Plan.lease`), written over in place, so that a full disk does not
keep it from being told. Times are of the kernel's clock since boot, which nobody sets and which goes on while the
machine sleeps; the boot's id says which boot is meant.
"""

import os
import time
from pathlib import Path

import msgspec

from worker_agent.machine.processes import boot_id
from worker_agent.protocol.plan import LEASE_GRACE_S
from worker_agent.protocol.states import Cause
from worker_agent.replica.verdict import StopRequest

LEASE_FILE = "lease"
LOOK_EVERY_S = 1.0
TOUCH_EVERY_S = 0.5


class Touch(msgspec.Struct, frozen=True):
    """The last time in touch: seconds `at` since that boot."""

    at: float
    boot_id: str


def since_boot_s() -> float:
    """Seconds since the machine was started."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class LeaseKeeper:
    """The agent's side. One per data folder; for one thread."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._boot_id = boot_id()
        self._at = float("-inf")

    def touch(self, at: float) -> None:
        """The control plane was in reach at `at` (`since_boot_s`); raises OSError when it cannot be written."""
        if at - self._at >= TOUCH_EVERY_S:
            os.pwrite(self._file, b'{"at":%20.6f,"boot_id":"%s"}' % (at, self._boot_id.encode()), 0)
            self._at = at


class Lease:
    """A shim's side: whether the node has been out of touch for longer than `lease_s` (0: it never is).

    While nothing was ever written, the moment at which the shim began counts.
    """

    def __init__(self, path: str, lease_s: float) -> None:
        self._path = Path(path)
        self._lease_s = lease_s if path else 0.0
        self._boot_id = boot_id()
        self._touched_at = since_boot_s()
        self._look_at = 0.0
        self._is_over = False

    def overdue_stop(self) -> StopRequest | None:
        """The stop that is due, once, when the lease is found to be over. Reads no more often than `LOOK_EVERY_S`."""
        now = since_boot_s()
        if not self._lease_s or self._is_over or now < self._look_at:
            return None
        self._look_at = now + LOOK_EVERY_S
        self._touched_at = self._read(now) or self._touched_at
        self._is_over = now - self._touched_at > self._lease_s
        if not self._is_over:
            return None
        reason = (
            f"Its node could not reach the control plane for more than {self._lease_s:g} s, its lease, "
            "so it was ended before it could be launched again elsewhere."
        )
        return StopRequest(at=time.time(), cause=Cause.LEASE_LOST, reason=reason, grace_s=LEASE_GRACE_S)

    def _read(self, now: float) -> float | None:
        """When the file says; None for another boot's, and for a line that was read while it was being written."""
        try:
            touch = msgspec.json.decode(self._path.read_bytes(), type=Touch)
        except (OSError, msgspec.DecodeError):
            return None
        return touch.at if touch.boot_id == self._boot_id and touch.at <= now else None
