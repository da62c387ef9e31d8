"""The list of jobs, and the search of the command palette. Each request is parsed, read by one query, shown."""

from dataclasses import dataclass
from urllib.parse import urlencode

from django.http import HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from dashboard.requests import SignedIn
from dashboard.templatetags.trainyard import metric_name, word
from dashboard.views.job.row import printed
from dashboard.views.job.words import JobRow
from orchestrator.domain.lifecycle import LIVE_JOB
from orchestrator.queries import jobs as job_queries
from orchestrator.queries import machines, sorting
from worker_agent.protocol.job.strategies import STRATEGIES
from worker_agent.protocol.states import JobStatus

PAGE_SIZE = 50
FOUND = 6
SEARCH_CHARS = METRIC_CHARS = 200
ACTIVE = tuple(status.value for status in JobStatus if status in LIVE_JOB)
STATUS_FILTERS = {
    "": ("All", tuple(status.value for status in JobStatus)),
    "active": ("Active", ACTIVE),
    "succeeded": ("Succeeded", ("succeeded",)),
    "failed": ("Failed", ("failed",)),
    "stopped": ("Stopped", ("stopped",)),
}


@dataclass(frozen=True)
class Filters:
    """What the address asks for. Words that mean nothing filter nothing; names filter as they stand."""

    status: str = ""
    strategy: str = ""
    owner: str = ""
    cluster: str = ""
    search: str = ""
    tag: str = ""
    sort: str = ""
    metric: str = "loss"

    @classmethod
    def of(cls, request: SignedIn) -> "Filters":
        """Read the query string."""
        asked = request.GET
        status, strategy = asked.get("status", ""), asked.get("strategy", "")
        sort, metric = asked.get("sort", ""), asked.get("metric", "")[:METRIC_CHARS] or "loss"
        return cls(
            status=status if status in STATUS_FILTERS else "",
            strategy=strategy if strategy in STRATEGIES else "",
            owner=asked.get("owner", ""),
            cluster=asked.get("cluster", ""),
            search=asked.get("search", "")[:SEARCH_CHARS].strip(),
            tag=asked.get("tag", "")[:SEARCH_CHARS],
            sort=sort if sorting.Order.read(sort, metric=metric) else "",
            metric=metric,
        )

    @property
    def narrow(self) -> bool:
        """Whether they leave jobs out."""
        return (self.status, self.strategy, self.owner, self.cluster, self.search, self.tag) != ("",) * 6

    def address(self, **changes: object) -> str:
        """The list with these filters, some of them changed."""
        words = {name: value for name, value in (vars(self) | changes).items() if value not in ("", None)}
        if words["metric"] == "loss":
            del words["metric"]
        return reverse("jobs") + (f"?{urlencode(words)}" if words else "")


@dataclass(frozen=True)
class Head:
    """The head of a column: `sorted` is empty, or `ascending` or `descending`; `address` sorts by it, or turns it."""

    key: str
    label: str
    css: str
    address: str
    sorted: str
    title: str = ""


COLUMNS = (
    ("name", "Job", "", ""),
    ("status", "Status", "", ""),
    ("strategy", "Strategy", "", ""),
    ("progress", "Progress", "", ""),
    ("metric", "", "n hide-lg", "Of the last epoch; of a script, what it reported last"),
    ("curve", "Loss curve", "hide-lg", ""),
    ("cluster", "Cluster", "hide-lg", ""),
    ("owner", "Owner", "hide-lg", ""),
    ("submitted", "Started", "n hide-md", "In the order in which they were submitted"),
)


@require_safe
def jobs(request: SignedIn) -> HttpResponse:
    """The list, filtered and sorted by the address."""
    filters = Filters.of(request)
    order = sorting.Order.read(filters.sort, metric=filters.metric)
    found = job_queries.page(
        request.user,
        status=STATUS_FILTERS[filters.status][1] if filters.status else (),
        strategy=filters.strategy,
        owner=filters.owner,
        cluster=filters.cluster,
        search=filters.search,
        tag=filters.tag,
        order=order,
        cursor=_whole(request.GET.get("before")),
        after=_whole(request.GET.get("after")),
        limit=PAGE_SIZE,
    )
    counts = job_queries.counts(request.user)
    rows = [JobRow.of(job, metric=filters.metric) for job in found.items]
    context = {
        "rows": rows,
        "printed": [printed(row) for row in rows],
        "filters": filters,
        "filtered": filters.narrow,
        "heads": _heads(filters),
        "sorts": [
            (f"{sign}{key}", f"{_label(key, label, filters)}, {way}")
            for key, label, *_ in COLUMNS
            if key != "curve"
            for sign, way in (("", "lowest first"), ("-", "highest first"))
        ],
        "metrics": sorted({*job_queries.metric_names(request.user), filters.metric}),
        "untagged": filters.address(tag=""),
        "here": request.GET.urlencode(),
        "choices": [
            {
                "label": label,
                "address": filters.address(status=key),
                "count": sum(counts[status] for status in statuses),
                "current": key == filters.status,
            }
            for key, (label, statuses) in STATUS_FILTERS.items()
        ],
        "strategies": [(strategy.value, row.label) for strategy, row in STRATEGIES.items()],
        "owners": job_queries.owners(request.user),
        "clusters": machines.cluster_names(request.user),
        "newer": filters.address(**{"before" if order else "after": found.newer}) if found.newer is not None else "",
        "older": filters.address(before=found.next) if found.next else "",
    }
    return render(request, "dashboard/jobs/page.html", context)


def _heads(filters: Filters) -> list[Head]:
    """A column that is sorted turns at the next click; the others begin with their lowest."""
    heads = []
    for key, label, css, title in COLUMNS:
        is_sorted = filters.sort.removeprefix("-") == key
        falls = is_sorted and filters.sort.startswith("-")
        turned = "" if key == "submitted" and is_sorted else f"-{key}" if is_sorted and not falls else key
        heads.append(
            Head(
                key=key,
                label=_label(key, label, filters),
                css=css,
                address="" if key == "curve" else filters.address(sort=turned),
                sorted=("descending" if falls else "ascending") if is_sorted else "",
                title=title,
            )
        )
    return heads


def _label(key: str, label: str, filters: Filters) -> str:
    return metric_name(filters.metric) if key == "metric" else label


@require_safe
def job_find(request: SignedIn) -> JsonResponse:
    """For the palette: the newest jobs of that name or number, then, but for `only=jobs`, the nodes."""
    search = request.GET.get("q", "")[:SEARCH_CHARS].strip()
    found = job_queries.page(request.user, search=search, limit=FOUND).items
    items = [
        {
            "icon": "jobs",
            "label": job.name,
            "hint": f"j-{job.pk}, {job.status}",
            "href": reverse("job", args=[job.pk]),
            "id": job.pk,
        }
        for job in found
    ]
    if search and request.GET.get("only") != "jobs":
        items += [
            {"icon": "node", "label": node.name, "hint": word(node.state), "href": reverse("node", args=[node.pk])}
            for node in machines.find_nodes(request.user, search, limit=FOUND)
        ]
    return JsonResponse({"items": items})


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 19 else None
