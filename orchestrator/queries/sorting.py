"""The order of the list of jobs: by any of its columns, or by a metric. `queries/jobs.page` calls this.

Each order is that of an index, except `progress`, which is reckoned. Jobs without a value come last either way.
"""

from typing import NamedTuple

from django.db import connection
from django.db.models import Case, Exists, F, FloatField, OuterRef, QuerySet, Value, When
from django.db.models.expressions import OrderBy
from django.db.models.functions import Cast

from orchestrator.models import Job, JobMetric
from worker_agent.protocol.states import JobStatus

# So far a sorted list can be paged: whoever looks for more asks for less by a filter.
DEEPEST = 10_000
NAMES_MOST = 200
_PROGRESS = Case(
    When(status=JobStatus.SUCCEEDED.value, then=Value(1.0)),
    When(total_steps__gt=0, then=Cast(F("step"), FloatField()) / F("total_steps")),
)
NEVER_EMPTY = {
    "submitted": F("pk"),
    "name": F("name"),
    "status": F("status"),
    "strategy": F("strategy"),
    "cluster": F("cluster__name"),
    "owner": F("owner__username"),
}
COLUMNS: dict[str, F | Case] = NEVER_EMPTY | {"progress": _PROGRESS}
METRIC = "metric"


class Order(NamedTuple):
    """By which column, or by which `metric`."""

    by: str
    descending: bool = False
    metric: str = ""

    @classmethod
    def read(cls, text: str, *, metric: str) -> "Order | None":
        """Of words such as `name` or `-metric` (descending); None where they mean none, and for the newest first."""
        by, descending = text.removeprefix("-"), text.startswith("-")
        if text == "-submitted" or (by not in COLUMNS and not (by == METRIC and metric)):
            return None
        return cls(by, descending, metric if by == METRIC else "")


def ids(jobs: QuerySet[Job], order: Order, *, skip: int, limit: int) -> list[int]:
    """The ids of `limit` of these jobs in that order, behind the first `skip`."""
    if order.by == METRIC:
        return _by_metric(jobs, order, skip=skip, limit=limit)
    column = COLUMNS[order.by]
    # Where every job has a value, NULLS LAST would only keep the database from its index.
    last = None if order.by in NEVER_EMPTY else True
    key = OrderBy(column, descending=order.descending, nulls_last=last)
    behind = "pk" if order.descending else "-pk"
    return list(jobs.order_by(key, behind).values_list("pk", flat=True)[skip : skip + limit])


def metric_names() -> list[str]:
    """The names of all metrics that some job has, at most `NAMES_MOST`: one jump in the index for each."""
    with connection.cursor() as cursor:
        table = connection.ops.quote_name(JobMetric._meta.db_table)
        cursor.execute(
            f"WITH RECURSIVE found(name) AS (SELECT MIN(name) FROM {table} UNION ALL "
            f"SELECT (SELECT MIN(name) FROM {table} WHERE name > found.name) FROM found WHERE found.name IS NOT NULL) "
            "SELECT name FROM found WHERE name IS NOT NULL LIMIT %s",
            [NAMES_MOST],
        )
        return [name for (name,) in cursor.fetchall()]


def _by_metric(jobs: QuerySet[Job], order: Order, *, skip: int, limit: int) -> list[int]:
    """Those that have a number in the order of its index, then the others, the newest first."""
    named = jobs.filter(metric_rows__name=order.metric, metric_rows__value__isnull=False)
    sign, behind = ("-", "") if order.descending else ("", "-")
    ordered = named.order_by(f"{sign}metric_rows__value", f"{behind}metric_rows__job_id")
    found = list(ordered.values_list("pk", flat=True)[skip : skip + limit])
    if len(found) == limit:
        return found
    has = JobMetric.objects.filter(job=OuterRef("pk"), name=order.metric, value__isnull=False)
    passed = max(skip - named.count(), 0) if not found else 0
    others = jobs.exclude(Exists(has)).order_by("-pk").values_list("pk", flat=True)
    return [*found, *others[passed : passed + limit - len(found)]]
