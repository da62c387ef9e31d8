"""A row of the list of jobs as HTML. What was printed is kept by all that it says: rows that look the same are made
once.
"""

from dataclasses import dataclass
from functools import lru_cache

from django.template.loader import render_to_string

from dashboard.templatetags.trainyard import figure, when
from dashboard.views.job.words import JobRow

KEPT = 2000


@dataclass(frozen=True)
class Printed:
    """All that the template of a row reads, as words and numbers: nothing else can change how the row looks."""

    pk: int
    name: str
    status: str
    note: str
    tags: tuple[str, ...]
    recipe: str
    strategy: str
    devices: int
    step: int
    percent: float | None
    remaining_s: float | None
    value: str
    metric: str
    curve: tuple[float, ...]
    cluster: str
    owner: str
    started: str
    lasted: str


def printed(row: JobRow) -> str:
    """The row's HTML."""
    job = row.job
    return _html(
        Printed(
            pk=job.pk,
            name=job.name,
            status=job.status,
            note=row.note,
            tags=tuple(job.tags),
            recipe=job.recipe,
            strategy=job.strategy,
            devices=row.devices,
            step=job.step,
            percent=row.percent,
            remaining_s=row.remaining_s,
            value=figure(row.value),
            metric=row.metric,
            curve=tuple(row.curve),
            cluster=job.cluster.name,
            owner=job.owner.username,
            started=when(row.started),
            lasted=row.lasted,
        )
    )


@lru_cache(KEPT)
def _html(row: Printed) -> str:
    return render_to_string("dashboard/jobs/_row.html", {"row": row})
