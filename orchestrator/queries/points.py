"""All points of series of jobs, as they are stored: for a table to take away, however many there are."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from orchestrator import series as storage
from orchestrator.models import Job
from orchestrator.queries.telemetry import one_moment


class Piece(NamedTuple):
    """Some points of one series of a replica, in order."""

    job_id: int
    name: str
    replica: str
    attempt: int
    curve: storage.Curve


def pieces(jobs: Sequence[Job], names: Sequence[str]) -> Iterator[Piece]:
    """The series called `names` of all replicas and attempts of the jobs, one after the other, in little memory: a page
    of blocks is held at a time, and no transaction while the caller works or waits."""
    for job in jobs:
        for replica in job.replicas.order_by("attempt", "role", "index", "incarnation"):
            owner = storage.Owner(replica_id=replica.pk)
            for name in names:
                first: int | None = 0
                while first is not None:
                    with one_moment():
                        curves, first = storage.page(owner, name, first=first)
                    for curve in curves:
                        yield Piece(job.pk, name, str(replica), replica.attempt, curve)
