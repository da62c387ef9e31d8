"""Who may open a WebSocket: pages of this very server. Browsers send cookies along with any page's WebSocket request
and no CSRF token, so the Origin header is the only thing that tells a page of ours from a stranger's.
"""

from urllib.parse import urlsplit

from django.conf import settings
from django.http.request import split_domain_port, validate_host

from dashboard.config.limits import App, Receive, Scope, Send


class SameOrigin:
    """ASGI: refuses (HTTP 403) a handshake whose Host is not ours or whose Origin is another than that host."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on or deny."""
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        if accepts(host=headers.get(b"host", ""), origin=headers.get(b"origin", "")):
            await self.app(scope, receive, send)
        else:
            await receive()
            await send({"type": "websocket.close"})


def accepts(*, host: str, origin: str) -> bool:
    """True if both name this server: the host is an allowed one, the origin is that host or a trusted address."""
    domain, _ = split_domain_port(host)
    if not domain or not validate_host(domain, settings.ALLOWED_HOSTS):
        return False
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    parts = urlsplit(origin)
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()
