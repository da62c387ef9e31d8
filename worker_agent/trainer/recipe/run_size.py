"""The arithmetic of one run: rows, batches, steps. Pure."""

import math
from dataclasses import dataclass, replace

from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.trainer.outcome import TrainingFailed


@dataclass(frozen=True, kw_only=True)
class Size:
    """`rows` in the training set; `batch` of them make one optimizer step. Of the last epoch some steps may be left
    out: the whole run has `total_steps`."""

    rows: int
    batch: int
    steps_per_epoch: int
    total_steps: int

    @property
    def epochs(self) -> int:
        """Begun in the whole run."""
        return -(-self.total_steps // self.steps_per_epoch)

    def in_parts(self, parts: int) -> "Size":
        """The same rows in the same order, read in `parts` equal parts of each step's batch."""
        steps = {"steps_per_epoch": self.steps_per_epoch * parts, "total_steps": self.total_steps * parts}
        return replace(self, batch=self.batch // parts, **steps)


def size_of(spec: JobSpec, *, rows: int, replicas: int, parts: int = 1) -> Size:
    """Steps of an epoch of the job; raises `TrainingFailed` when a step cannot be filled or divided."""
    batch = spec.global_batch_size
    for number, by in (
        (replicas, f"the {replicas} replicas"),
        (replicas * parts, f"{replicas} replica{'' if replicas == 1 else 's'} × {parts} accumulated parts"),
    ):
        if batch % number:
            raise TrainingFailed(
                f"The global batch of {batch} does not divide by {by}", remedy=f"choose a multiple of {number}"
            )
    if rows < batch:
        held = f"{rows} row{'' if rows == 1 else 's'}"
        raise TrainingFailed(
            f"The training set has {held}, fewer than the global batch of {batch}",
            remedy="choose a smaller batch, or give it more rows",
        )
    steps_per_epoch = rows // batch
    total_steps = min(steps_per_epoch * spec.epochs, spec.max_steps or math.inf)
    return Size(rows=rows, batch=batch, steps_per_epoch=steps_per_epoch, total_steps=int(total_steps))
