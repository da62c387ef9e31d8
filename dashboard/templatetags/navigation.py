"""The side bar's content: where one can go, how many jobs are under way, which machines need attention."""

from typing import Any

from django import template
from django.urls import reverse

from orchestrator.queries import jobs, machines

register = template.Library()

CLUSTERS_SHOWN = 6
JOB_PAGES = frozenset({"jobs", "job", "job_new"})
PEOPLE_PAGES = frozenset({"people", "person"})
ACCOUNT_PAGES = frozenset({"tokens", "password"})
TEST_PAGES = frozenset({"strategy_tests", "strategy_test", "strategy_test_new", "strategy_test_extend"})
NODE_PAGES = frozenset({"nodes", "node"})


@register.inclusion_tag("dashboard/frame/_side.html", takes_context=True)
def side_bar(context: dict[str, Any]) -> dict[str, object]:
    """The side bar for the person and page of this request."""
    request = context["request"]
    match = request.resolver_match
    here = match.url_name if match and not match.namespaces else ""
    user = request.user
    return _counts(request) | {
        "request": request,
        "user": user,
        "here": here,
        "on_jobs": here in JOB_PAGES,
        "on_tests": here in TEST_PAGES,
        "on_nodes": here in NODE_PAGES,
        "on_people": here in PEOPLE_PAGES,
        "on_account": here in ACCOUNT_PAGES,
    }


@register.inclusion_tag("dashboard/frame/_side_counts.html", takes_context=True)
def side_counts(context: dict[str, Any]) -> dict[str, object]:
    """The counts alone, for the answer that renews the parts of an open page."""
    return _counts(context["request"])


def _counts(request: Any) -> dict[str, object]:
    user = request.user
    return {
        "under_way": sum(jobs.counts(user, live=True).values()),
        "clusters": [
            {
                "name": name,
                "count_id": f"count-lost-{key}",
                "lost": lost,
                "current": request.path == reverse("cluster", args=[name]),
            }
            for key, name, lost in machines.losses(user)[:CLUSTERS_SHOWN]
        ],
    }
