"""The points behind a chart as a table to take away: the job page and the comparison link to it."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence

from django.http import HttpResponseBase
from django.views.decorators.http import require_safe

from dashboard.downloads import bytes_attachment
from dashboard.requests import SignedIn, chosen
from dashboard.views.answers import page
from dashboard.views.compare import MOST
from orchestrator.queries import jobs as job_queries
from orchestrator.queries import points as point_queries
from orchestrator.queries.errors import NotFound

MOST_NAMES = 20
COLUMNS = ("job", "series", "replica", "attempt", "step", "time", "value")
# With which a spreadsheet would take a name for a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


@require_safe
@page
def points(request: SignedIn) -> HttpResponseBase:
    """All points of the series `name=…` of `jobs=1,2`, as CSV: a row each; `time` in seconds since 1970."""
    jobs = job_queries.many(request.user, chosen(request.GET)[:MOST])
    if not jobs:
        raise NotFound("There is no such job.")
    names = list(dict.fromkeys(request.GET.getlist("name")))[:MOST_NAMES]
    called = "-".join([*(f"j{job.pk}" for job in jobs[:3]), *names[:1]])
    pieces = point_queries.pieces(jobs, names)
    return bytes_attachment(request, _csv(pieces), name=f"{called}.csv", kind="text/csv; charset=utf-8")


def _csv(pieces: Iterator[point_queries.Piece]) -> Iterator[bytes]:
    yield _rows([COLUMNS])
    for piece in pieces:
        name = f"'{piece.name}" if piece.name.startswith(FORMULA) else piece.name
        told = (piece.job_id, name, piece.replica, piece.attempt)
        columns = (column.tolist() for column in piece.curve)
        yield _rows((*told, *point) for point in zip(*columns, strict=True))


def _rows(rows: Iterable[Sequence[object]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()
