"""How the administration looks and what its side bar holds (django-unfold's `UNFOLD` setting)."""

from django.templatetags.static import static
from django.urls import reverse_lazy

BLUE = {
    "50": "#eff5ff",
    "100": "#dce8fe",
    "200": "#c0d6fd",
    "300": "#95bafb",
    "400": "#6396f6",
    "500": "#3d73ee",
    "600": "#2459d9",
    "700": "#1f48b4",
    "800": "#1e3d91",
    "900": "#1e3773",
    "950": "#162347",
}


def _link(title: str, icon: str, route: str) -> dict[str, object]:
    return {"title": title, "icon": icon, "link": reverse_lazy(route)}


LOOK: dict[str, object] = {
    "SITE_TITLE": "Trainyard administration",
    "SITE_HEADER": "Trainyard",
    "SITE_SUBHEADER": "Administration",
    "SITE_URL": "/",
    "SITE_ICON": lambda _request: static("dashboard/mark.svg"),
    "SITE_FAVICONS": [
        {"rel": "icon", "type": "image/svg+xml", "href": lambda _request: static("dashboard/mark.svg")},
    ],
    "SHOW_HISTORY": False,
    "COLORS": {"primary": BLUE},
    "SIDEBAR": {
        "show_search": False,
        "show_all_applications": False,
        "navigation": [
            {"items": [_link("Back to Trainyard", "arrow_back", "overview") | {"active": lambda _request: False}]},
            {
                "title": "Machines",
                "items": [
                    _link("Clusters", "hub", "admin:orchestrator_cluster_changelist"),
                    _link("Nodes", "dns", "admin:orchestrator_node_changelist"),
                ],
            },
            {
                "title": "Work",
                "items": [
                    _link("Jobs", "list", "admin:orchestrator_job_changelist"),
                    _link("Events", "history", "admin:orchestrator_event_changelist"),
                ],
            },
            {
                "title": "People",
                "items": [
                    _link("People and roles", "group", "admin:orchestrator_user_changelist"),
                    _link("API tokens", "key", "admin:orchestrator_apitoken_changelist"),
                    _link("Failed sign-ins", "lock", "admin:axes_accessattempt_changelist"),
                ],
            },
        ],
    },
}
