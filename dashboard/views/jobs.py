"""The list of jobs, and the search of the command palette. Each request is parsed, read by one query, shown."""

from dataclasses import dataclass
from urllib.parse import urlencode

from django.http import HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from dashboard.requests import SignedIn
from dashboard.templatetags.trainyard import word
from dashboard.views.job.words import JobRow
from orchestrator.domain.lifecycle import LIVE_JOB
from orchestrator.queries import jobs as job_queries
from orchestrator.queries import machines
from worker_agent.protocol.job.strategies import STRATEGIES
from worker_agent.protocol.states import JobStatus

PAGE_SIZE = 50
FOUND = 6
SEARCH_CHARS = 100
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

    @classmethod
    def of(cls, request: SignedIn) -> "Filters":
        """Read the query string."""
        asked = request.GET
        status, strategy = asked.get("status", ""), asked.get("strategy", "")
        return cls(
            status=status if status in STATUS_FILTERS else "",
            strategy=strategy if strategy in STRATEGIES else "",
            owner=asked.get("owner", ""),
            cluster=asked.get("cluster", ""),
            search=asked.get("search", "")[:SEARCH_CHARS].strip(),
        )

    def address(self, **changes: object) -> str:
        """The list with these filters, some of them changed."""
        words = {name: value for name, value in (vars(self) | changes).items() if value not in ("", None)}
        return reverse("jobs") + (f"?{urlencode(words)}" if words else "")


@require_safe
def jobs(request: SignedIn) -> HttpResponse:
    """The list, newest first, filtered by the address."""
    filters = Filters.of(request)
    found = job_queries.page(
        request.user,
        status=STATUS_FILTERS[filters.status][1] if filters.status else (),
        strategy=filters.strategy,
        owner=filters.owner,
        cluster=filters.cluster,
        search=filters.search,
        cursor=_whole(request.GET.get("before")),
        after=_whole(request.GET.get("after")),
        limit=PAGE_SIZE,
    )
    counts = job_queries.counts(request.user)
    context = {
        "rows": [JobRow.of(job) for job in found.items],
        "filters": filters,
        "filtered": filters != Filters(),
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
        "clusters": [name for _, name, _ in machines.losses(request.user)],
        "newer": filters.address(after=found.newer) if found.newer else "",
        "older": filters.address(before=found.next) if found.next else "",
    }
    return render(request, "dashboard/jobs/page.html", context)


@require_safe
def job_find(request: SignedIn) -> JsonResponse:
    """Jobs and nodes for the palette: the newest jobs with that in their name, then the nodes."""
    search = request.GET.get("q", "")[:SEARCH_CHARS].strip()
    found = job_queries.page(request.user, search=search, limit=FOUND).items
    items = [
        {"icon": "jobs", "label": job.name, "hint": word(job.status), "href": reverse("job", args=[job.pk])}
        for job in found
    ]
    if search:
        items += [
            {"icon": "node", "label": node.name, "hint": word(node.state), "href": reverse("node", args=[node.pk])}
            for node in machines.find_nodes(request.user, search, limit=FOUND)
        ]
    return JsonResponse({"items": items})


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 19 else None
