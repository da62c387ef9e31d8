"""The arithmetic of one run: rows, batches, steps. Pure."""

from dataclasses import dataclass

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


def size_of(*, rows: int, global_batch: int, replicas: int, epochs: int) -> Size:
    """Steps of an epoch; raises `TrainingFailed` when a step cannot be filled or divided."""
    if global_batch % replicas:
        raise TrainingFailed(f"The global batch of {global_batch} does not divide by the {replicas} replicas.")
    if rows < global_batch:
        raise TrainingFailed(f"The training set has {rows} rows, fewer than the global batch of {global_batch}.")
    return Size(rows=rows, batch=global_batch, steps_per_epoch=rows // global_batch, epochs=epochs)
