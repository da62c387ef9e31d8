"""What the job page shows of a job's checkpoints. For `contents.py`."""

from dataclasses import dataclass

from orchestrator.queries.rows import Checkpoint
from worker_agent.protocol.job.job_spec import JobSpec, keeps_checkpoints


@dataclass(frozen=True)
class CheckpointList:
    """All of them, newest first, and the `spec` that asks for them."""

    rows: list[Checkpoint]
    spec: JobSpec

    @property
    def expected(self) -> bool:
        """Whether the job writes any."""
        return keeps_checkpoints(self.spec)

    @property
    def place(self) -> str:
        """The folder that the nodes share, "" where they share none."""
        return next((row.place for row in self.rows), "")

    @property
    def newest_usable(self) -> Checkpoint | None:
        """The one that a new job would go on from, or None."""
        return next((row for row in self.rows if row.usable), None)
