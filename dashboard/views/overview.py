"""The first page: what runs, what waits, what needs a person, and the machines at a glance."""

from datetime import UTC, datetime, timedelta
from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from dashboard.requests import SignedIn
from dashboard.templatetags.trainyard import duration
from dashboard.views.job.words import JobRow, headline
from dashboard.views.machines import machine_rows
from orchestrator.queries import jobs as job_queries
from orchestrator.queries import machines, telemetry
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
    failed = [job for job in ended if job.status == JobStatus.FAILED]
    nodes = machines.nodes(user)
    slots = machines.slots(nodes)
    attention = [*_lost(nodes, slots), *_failed(failed)]
    context = {
        "tiles": _tiles(job_queries.counts(user), waiting, failed, len(ended), machine_rows.counts(slots), now),
        "attention": attention[:ATTENTION_SHOWN],
        "attention_count": len(attention),
        "running": [
            {
                "row": JobRow.of(job, now=now),
                "curve": _curve(job) if place < CURVES_SHOWN and job.status == JobStatus.RUNNING else [],
            }
            for place, job in enumerate(running)
        ],
        "waiting": [JobRow.of(job, now=now) for job in waiting],
        "clusters": _maps(nodes, slots),
        "events": job_queries.latest_events(user, limit=EVENTS_SHOWN),
        "any_job": bool(live or ended) or bool(job_queries.recent(user, limit=1)),
    }
    return render(request, "dashboard/overview/page.html", context)


def _tiles(
    counts: dict[str, int], waiting: list[Any], failed: list[Any], ended: int, devices: dict[str, int], now: datetime
) -> list[dict[str, str]]:
    other = [
        f"{counts[state]} {state}"
        for state in ("launching", "restarting", "pausing", "paused", "stopping")
        if counts[state]
    ]
    longest = max((now - job.created_at for job in waiting), default=timedelta())
    out_of_use = "".join(f", {devices[state]} {state}" for state in ("dirty", "lost") if devices[state])
    spare = f"{devices['free']} free{out_of_use}"
    return [
        {
            "label": "Devices in use",
            "figure": str(devices["held"]),
            "unit": f"of {sum(devices.values())}",
            "note": spare,
        },
        {"label": "Jobs running", "figure": str(counts["running"]), "unit": "", "note": ", ".join(other)},
        {
            "label": "Waiting",
            "figure": str(len(waiting)),
            "unit": "",
            "note": f"longest {duration(longest.total_seconds())}" if waiting else "nothing waits",
        },
        {
            "label": "Failed, last 24 h",
            "figure": str(len(failed)),
            "unit": "",
            "note": f"of {ended} finished" if ended else "none finished",
        },
    ]


def _lost(nodes: list[Any], slots: dict[str, list[machines.Slot]]) -> list[dict[str, Any]]:
    return [
        {
            "state": "lost",
            "title": f"{node.name} has been silent since",
            "since": node.last_seen_at,
            "text": f"{_devices(len(slots[node.pk]))} out of use. "
            "Look at the power and network of the machine, and whether its agent runs.",
            "href": reverse("node", args=[node.pk]),
            "action": "Open node",
        }
        for node in nodes
        if node.state == NodeState.LOST
    ]


def _failed(jobs: list[Any]) -> list[dict[str, Any]]:
    return [
        {
            "state": "failed",
            "title": job.name,
            "number": f"j-{job.pk}",
            "text": headline(job.reason) or "It failed without a word.",
            "href": reverse("job", args=[job.pk]),
            "action": "See why",
        }
        for job in jobs
    ]


def _devices(number: int) -> str:
    return "1 device is" if number == 1 else f"{number} devices are"


def _curve(job: Any) -> list[float]:
    views = telemetry.series(job, names=["loss"], points=CURVE_POINTS).get("loss", [])
    return views[-1].values if views else []


def _maps(nodes: list[Any], slots: dict[str, list[machines.Slot]]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for node in nodes:
        one = found.setdefault(node.cluster.name, {"name": node.cluster.name, "nodes": [], "more": 0, "slots": {}})
        one["slots"][node.pk] = slots[node.pk]
        if len(one["nodes"]) < NODES_SHOWN:
            one["nodes"].append({"node": node, "slots": slots[node.pk]})
        else:
            one["more"] += 1
    for one in found.values():
        one["counts"] = machine_rows.counts(one.pop("slots"))
        one["devices"] = sum(one["counts"].values())
    return list(found.values())
