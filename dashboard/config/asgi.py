"""The web server's entry: HTTP to Django, WebSockets to the consumers. `uvicorn dashboard.config.asgi:application`.

Refuses to start where a system check of ours finds an unsafe setting, because uvicorn runs no checks by itself.
"""

import os

from channels.routing import ProtocolTypeRouter, URLRouter
from channels.sessions import CookieMiddleware
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.config.settings")
_http = get_asgi_application()

# After Django is set up, because these import tables.
from dashboard.checks import refuse_unsafe_start  # noqa: E402
from dashboard.config.limits import BodyLimit  # noqa: E402
from dashboard.config.origin import SameOrigin  # noqa: E402
from dashboard.sockets.routing import websocket_urlpatterns  # noqa: E402

refuse_unsafe_start()

application = ProtocolTypeRouter(
    {
        "http": BodyLimit(_http),
        "websocket": SameOrigin(CookieMiddleware(URLRouter(websocket_urlpatterns))),
    }
)
