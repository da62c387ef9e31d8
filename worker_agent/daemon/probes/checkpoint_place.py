"""Whether the folder that a cluster shares for checkpoints can be written from this node.

Tried as a checkpoint is written: a file is made, synced, renamed, and in the end removed. A network disk that hangs
holds up nobody longer than `PATIENCE_S`. Called by `prober.py` before, and by the supervisor at each launch.
"""

import contextlib
import os
import queue
import shutil
import threading
from pathlib import Path

from worker_agent.protocol.findings import Finding

PATIENCE_S = 10.0
FREE_BYTES = 1 << 30


def marker(folder: str, *, key: str, node: str) -> Path:
    """The file that a node leaves while it is tried whether all nodes see the same folder."""
    return Path(folder) / f".trainyard-{key}-{node}"


def problems_of(folder: str, *, tried: Path, patience_s: float = PATIENCE_S) -> list[Finding]:
    """What is wrong with the folder; writes the file `tried` into it and leaves it there for the caller to remove."""
    answers: queue.SimpleQueue[list[Finding]] = queue.SimpleQueue()
    look = threading.Thread(target=lambda: answers.put(_look(folder, tried)), name="checkpoint-place", daemon=True)
    look.start()
    try:
        return answers.get(timeout=patience_s)
    except queue.Empty:
        why = f"the disk has not answered for {patience_s:g} s"
        return [_unusable(folder, why, "See whether the server of that disk is up, and mount it again")]


def _look(folder: str, tried: Path) -> list[Finding]:
    try:
        _write(tried)
        free_bytes = shutil.disk_usage(folder).free
    except FileNotFoundError:
        return [_unusable(folder, "it does not exist", "Mount the shared disk there, or make the folder")]
    except OSError as error:
        user = f"the user that runs the agent (number {os.geteuid()})"
        return [_unusable(folder, (error.strerror or str(error)).lower(), f"Let {user} write there, or mount it again")]
    if free_bytes < FREE_BYTES:
        what = f"the checkpoint place {folder} is nearly full"
        why = f"{free_bytes // 2**20} MiB are free, and a checkpoint that does not fit ends the job"
        return [Finding(what, why, "Remove what is no longer needed there, or keep fewer checkpoints", blocks=False)]
    return []


def _write(tried: Path) -> None:
    fresh = tried.with_name(f"{tried.name}.new")
    try:
        with fresh.open("wb") as file:
            file.write(b"trainyard")
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(tried)
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise


def _unusable(folder: str, why: str, remedy: str) -> Finding:
    what = f"checkpoints cannot be written to {folder}"
    return Finding(what, why, f"{remedy}; or empty the cluster's checkpoint place, and Trainyard keeps them itself")
