"""Every WebSocket route. What is not named here is closed with 4404."""

from django.urls import path, re_path

from dashboard.sockets.consumers import JobFeed, JobsFeed, MachinesFeed, NodeFeed, Nowhere

websocket_urlpatterns = [
    path("ws/jobs/", JobsFeed.as_asgi(), name="ws_jobs"),
    path("ws/jobs/<int:job_id>/", JobFeed.as_asgi(), name="ws_job"),
    path("ws/jobs/<int:job_id>/attempts/<int:attempt>/", JobFeed.as_asgi(), name="ws_job_attempt"),
    path("ws/nodes/<slug:node_id>/", NodeFeed.as_asgi(), name="ws_node"),
    path("ws/machines/", MachinesFeed.as_asgi(), name="ws_machines"),
    re_path(r"", Nowhere.as_asgi(), name="ws_nowhere"),
]
