"""What a checkpoint is to everybody: its marker file, its name, and which ones are kept.

A checkpoint is a folder of plain files. It is complete when its marker `complete.json` is there, which is renamed into
place last and names every other file with size and SHA-256; so the digest of the marker stands for the whole.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from worker_agent.protocol.job.job_spec import ParamValue

MARKER = "complete.json"
FILES_MAX = 1000

_NAME = re.compile(r"step-(\d{10,18})-a(\d{1,9})")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a checkpoint."""

    sha256: str
    size_bytes: int


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """A variable whose value a checkpoint holds, to compare with those of the program that takes it up."""

    name: str
    shape: list[int]
    dtype: str


class Marker(msgspec.Struct, frozen=True, kw_only=True):
    """`complete.json`. `step` optimizer steps are done, `epoch` whole epochs among them.

    The input goes on from the position that (`seed`, `step`, `steps_per_epoch`) mean. `rate` is the learning rate that
    the training aimed at, None where the recipe's own schedule sets it. `metrics` hold finite numbers only. `params`
    are the hyper-parameters that it was trained with; markers of older versions have none.
    """

    name: str
    job_id: int
    attempt: int
    at: float
    step: int
    epoch: int
    total_steps: int
    steps_per_epoch: int
    global_batch_size: int
    seed: int
    rate: float | None
    metrics: dict[str, float]
    files: dict[str, Part]
    variables: list[Variable]
    versions: dict[str, str]
    params: dict[str, ParamValue] = {}

    @property
    def size_bytes(self) -> int:
        """Of all files but the marker."""
        return sum(part.size_bytes for part in self.files.values())


class Restore(msgspec.Struct, frozen=True, kw_only=True):
    """The checkpoint that a launch begins with. `folder` is where it lies on the node, "" for the control plane's own
    store, from which the agent fetches it; `sha256` is its marker's."""

    checkpoint_id: int
    job_id: int
    name: str
    sha256: str
    step: int
    epoch: int
    folder: str = ""


class Candidate(NamedTuple):
    """A complete checkpoint when it is decided which are kept."""

    name: str
    attempt: int
    step: int
    metrics: Mapping[str, Any]


def name_of(*, step: int, attempt: int) -> str:
    """The name, and folder, of the checkpoint that an attempt writes at a step."""
    return f"step-{step:010d}-a{attempt}"


def is_name(name: str) -> bool:
    """Whether a checkpoint may be called so."""
    return _NAME.fullmatch(name) is not None


def order_of(name: str) -> tuple[int, int]:
    """(attempt, step) of a checkpoint's name: what a later attempt has written is newer, whatever its step."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise ValueError(f"{name!r} is not the name of a checkpoint")
    return int(found[2]), int(found[1])


def problem_of(marker: Marker) -> str:
    """What is wrong with a marker that somebody else wrote, or ""."""
    if not is_name(marker.name):
        return "its name is not one that checkpoints have"
    if not 0 < len(marker.files) <= FILES_MAX:
        return f"it names {len(marker.files)} files; 1 to {FILES_MAX} are possible"
    for name, part in marker.files.items():
        if not _FILE.fullmatch(name) or name == MARKER:
            return f"it names a file {name[:40]!r}"
        if not re.fullmatch(r"[0-9a-f]{64}", part.sha256) or part.size_bytes < 0:
            return f"size or SHA-256 of {name} cannot be right"
    return ""


def best_of(candidates: Sequence[Candidate]) -> Candidate | None:
    """The one with the lowest validation loss; where none has one, the lowest training loss. The later of equals."""
    for metric in ("val_loss", "loss"):
        rated = [each for each in candidates if isinstance(each.metrics.get(metric), int | float)]
        if rated:
            return min(rated, key=lambda each: (each.metrics[metric], -each.attempt, -each.step))
    return None


def kept_of(candidates: Sequence[Candidate], *, keep: int) -> set[str]:
    """The names of those that are kept: the last `keep`, those of a later attempt first, and the best."""
    if keep <= 0:
        return set()
    last = sorted(candidates, key=lambda each: (each.attempt, each.step))[-keep:]
    best = best_of(candidates)
    return {each.name for each in last} | ({best.name} if best else set())
