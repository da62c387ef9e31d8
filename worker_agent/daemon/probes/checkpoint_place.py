"""Whether the folder that a cluster shares for checkpoints can be written from this node.

Tried as a checkpoint is written: a file is made, synced, renamed, and in the end removed. A network disk that hangs
holds up nobody longer than `PATIENCE_S`. Called by `prober.py` before, and by the runner at each launch.
"""

import contextlib
import os
import queue
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

from worker_agent.machine.files import write_atomically
from worker_agent.protocol.findings import Finding

PATIENCE_S = 10.0
FREE_BYTES = 1 << 30


def marker(folder: str, *, key: str, node: str) -> Path:
    """The file of a node, by which the others see that its folder is theirs."""
    return Path(folder) / f".trainyard-{key}-{node}"


@contextlib.contextmanager
def marked(folder: str, *, key: str, node: str, patience_s: float = PATIENCE_S) -> Iterator[list[Finding]]:
    """What is wrong with the folder, if there is one to share. Meanwhile the node's file lies in it, unless the disk
    has not answered."""
    if not folder:
        yield []
        return
    mark, answers = marker(folder, key=key, node=node), queue.SimpleQueue[list[Finding]]()
    threading.Thread(target=lambda: answers.put(_problems(folder, mark)), name="checkpoint-place", daemon=True).start()
    try:
        problems = answers.get(timeout=patience_s)
    except queue.Empty:
        why = f"the disk has not answered for {patience_s:g} s"
        yield [_unusable(folder, why, "Check that the server of that disk is up, and mount it again")]
        return
    try:
        yield problems
    finally:
        with contextlib.suppress(OSError):
            mark.unlink()


def _problems(folder: str, mark: Path) -> list[Finding]:
    try:
        write_atomically(mark, b"trainyard")
        free_bytes = shutil.disk_usage(folder).free
    except FileNotFoundError:
        return [_unusable(folder, "it does not exist", "Mount the shared disk there, or make the folder")]
    except OSError as error:
        user = f"the user that runs the agent (number {os.geteuid()})"
        return [_unusable(folder, (error.strerror or str(error)).lower(), f"Let {user} write there, or mount it again")]
    if free_bytes < FREE_BYTES:
        what = f"the checkpoint folder {folder} is nearly full"
        why = f"{free_bytes // 2**20} MiB are free, and a checkpoint that does not fit ends the job"
        return [Finding(what, why, "Remove what is no longer needed there, or keep fewer checkpoints", blocks=False)]
    return []


def _unusable(folder: str, why: str, remedy: str) -> Finding:
    what = f"checkpoints cannot be written to {folder}"
    return Finding(what, why, f"{remedy}; or empty the cluster's checkpoint folder, and Trainyard keeps them itself")
