"""What the job page shows of a job's checkpoints. For `job_page.py`."""

from dataclasses import dataclass
from datetime import datetime

from orchestrator.queries import checkpoints as queries
from orchestrator.queries.rows import Job
from worker_agent.protocol.job.job_spec import keeps_checkpoints

METRICS_SHOWN = 4


@dataclass(frozen=True)
class CheckpointRow:
    """One of them; `stored` means that it can be downloaded here."""

    pk: int
    step: int
    epoch: int
    metrics: list[tuple[str, object]]
    size_bytes: int
    attempt: int
    created_at: datetime
    best: bool
    usable: bool
    stored: bool


@dataclass(frozen=True)
class CheckpointList:
    """All of them, newest first; `expected` where the job asks for some, every so many steps (0: each epoch)."""

    rows: list[CheckpointRow]
    expected: bool
    kept: int
    every: int
    place: str

    @property
    def newest_usable(self) -> CheckpointRow | None:
        """The one that a new job would go on from, or None."""
        return next((row for row in self.rows if row.usable), None)


def checkpoints_of(job: Job) -> CheckpointList:
    """The checkpoints of a job as its page shows them."""
    spec, views = job.typed_spec, queries.of_job(job)
    return CheckpointList(
        rows=[_row(view) for view in views],
        expected=keeps_checkpoints(spec),
        kept=spec.checkpoints_kept,
        every=spec.checkpoint_steps,
        place=next((view.row.place for view in views), ""),
    )


def _row(view: queries.CheckpointView) -> CheckpointRow:
    row = view.row
    # What validation says is what a person chooses by.
    metrics = sorted(row.metrics.items(), key=lambda item: not item[0].startswith("val_"))
    return CheckpointRow(
        pk=row.pk,
        step=row.step,
        epoch=row.epoch,
        metrics=metrics[:METRICS_SHOWN],
        size_bytes=row.size_bytes,
        attempt=row.attempt,
        created_at=row.created_at,
        best=view.best,
        usable=row.usable,
        stored=view.where == queries.STORE,
    )
