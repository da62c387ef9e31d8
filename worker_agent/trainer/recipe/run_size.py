"""The arithmetic of one run: rows, batches, steps. Pure."""

from dataclasses import dataclass, replace

from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.trainer.outcome import TrainingFailed


@dataclass(frozen=True, kw_only=True)
class Size:
    """`rows` in the training set; `batch` of them make one optimizer step."""

    rows: int
    batch: int
    steps_per_epoch: int
    epochs: int

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the whole run."""
        return self.steps_per_epoch * self.epochs

    def in_parts(self, parts: int) -> "Size":
        """The same rows in the same order, read in `parts` equal parts of each step's batch."""
        return replace(self, batch=self.batch // parts, steps_per_epoch=self.steps_per_epoch * parts)


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
    return Size(rows=rows, batch=batch, steps_per_epoch=rows // batch, epochs=spec.epochs)
