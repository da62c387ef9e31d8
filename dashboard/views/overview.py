"""The first page: what runs, what waits, what needs a person, and the machines at a glance."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from dashboard.requests import SignedIn
from dashboard.templatetags.trainyard import duration, headline
from dashboard.views.job.words import JobRow
from dashboard.views.tiles import Tile
from orchestrator.domain.loss import LOSS, loss_name
from orchestrator.queries import jobs as job_queries
from orchestrator.queries import machines, telemetry
from orchestrator.queries.machines import Fleet, Slot
from orchestrator.queries.rows import Job, Node
from worker_agent.protocol.states import JobStatus, NodeState

LOOK_BACK = timedelta(hours=24)
JOBS_SHOWN = 100
CURVES_SHOWN = 8
CURVE_POINTS = 40
ATTENTION_SHOWN = 6
NODES_SHOWN = 12
EVENTS_SHOWN = 8


@require_safe
def overview(request: SignedIn) -> HttpResponse:
    """The page; its parts are fetched again by the same address when a state changes."""
    user, now = request.user, datetime.now(UTC)
    live = job_queries.recent(user, limit=JOBS_SHOWN, live=True)
    waiting = [job for job in live if job.status == JobStatus.SUBMITTED]
    running = [job for job in live if job.status != JobStatus.SUBMITTED]
    ended = job_queries.ended_since(user, now - LOOK_BACK)
    failed = job_queries.failed_since(user, now - LOOK_BACK, limit=ATTENTION_SHOWN)
    fleets = machines.fleets(user)
    yard = sum(fleets.values(), Fleet())
    lost = machines.nodes(user).filter(state=NodeState.LOST.value)[:ATTENTION_SHOWN]
    context = {
        "tiles": _tiles(job_queries.counts(user, live=True), waiting, ended, yard.devices, now),
        "attention": [*_lost(lost), *_failed(failed)][:ATTENTION_SHOWN],
        "attention_count": yard.nodes[NodeState.LOST] + ended["failed"],
        "running": [
            {
                "row": JobRow.of(job, now=now),
                "curve": _curve(job) if place < CURVES_SHOWN and job.status == JobStatus.RUNNING else [],
            }
            for place, job in enumerate(running)
        ],
        "waiting": [JobRow.of(job, now=now) for job in waiting],
        "clusters": _maps(machines.first_nodes(user, limit=NODES_SHOWN), fleets),
        "events": job_queries.latest_events(user, limit=EVENTS_SHOWN),
        "any_job": bool(live) or bool(job_queries.recent(user, limit=1)),
    }
    return render(request, "dashboard/overview/page.html", context)


def _tiles(
    counts: dict[str, int], waiting: list[Job], ended: dict[str, int], devices: Counter[str], now: datetime
) -> list[Tile]:
    other = [
        f"{counts[state]} {state}"
        for state in ("launching", "restarting", "pausing", "paused", "stopping")
        if counts[state]
    ]
    longest = max((now - job.created_at for job in waiting), default=timedelta())
    out_of_use = "".join(f", {devices[state]} {state}" for state in ("dirty", "lost") if devices[state])
    total = ended["ended"]
    in_all = f"of {sum(devices.values())}"
    patience = f"longest {duration(longest.total_seconds())}" if waiting else "nothing waits"
    return [
        Tile("Devices in use", str(devices["held"]), in_all, f"{devices['free']} free{out_of_use}"),
        Tile("Jobs running", str(counts["running"]), note=", ".join(other)),
        Tile("Waiting", str(len(waiting)), note=patience),
        Tile("Failed, last 24 h", str(ended["failed"]), note=f"of {total} finished" if total else "none finished"),
    ]


@dataclass(frozen=True)
class Concern:
    """What needs a person: a node that is `lost` `since` then, or a job that has `failed`, with its `number`."""

    state: str
    title: str
    text: str
    href: str
    action: str
    since: datetime | None = None
    number: str = ""


def _lost(nodes: Iterable[Node]) -> list[Concern]:
    return [
        Concern(
            "lost",
            f"{node.name} has been silent since",
            f"{_devices(len(node.devices))} out of use. "
            "Check the power and network of the machine, and whether its agent runs.",
            reverse("node", args=[node.pk]),
            "Open node",
            since=node.last_seen_at,
        )
        for node in nodes
    ]


def _failed(jobs: list[Job]) -> list[Concern]:
    return [
        Concern(
            "failed",
            job.name,
            headline(job.reason) or "It failed without a message.",
            reverse("job", args=[job.pk]),
            "See why",
            number=f"j-{job.pk}",
        )
        for job in jobs
    ]


def _devices(number: int) -> str:
    return "1 device is" if number == 1 else f"{number} devices are"


def _curve(job: Job) -> list[float]:
    views = next(iter(telemetry.series(job, names=[loss_name(job.metrics) or LOSS], points=CURVE_POINTS).values()), [])
    return views[-1].values if views else []


@dataclass(frozen=True)
class ClusterMap:
    """A cluster's first nodes with their devices, how many `more` it has, and how all its devices stand."""

    name: str
    nodes: list[tuple[Node, list[Slot]]]
    more: int
    counts: dict[str, int]
    devices: int


def _maps(nodes: Iterable[Node], fleets: Mapping[str, Fleet]) -> list[ClusterMap]:
    slots = machines.slots(nodes)
    by_cluster = groupby(nodes, key=lambda node: node.cluster.name)
    return [_map(name, [(node, slots[node.pk]) for node in own], fleets[name]) for name, own in by_cluster]


def _map(name: str, shown: list[tuple[Node, list[Slot]]], fleet: Fleet) -> ClusterMap:
    return ClusterMap(name, shown, fleet.nodes.total() - len(shown), fleet.devices, fleet.devices.total())
