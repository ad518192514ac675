"""Other web pages in the same browser are kept out: they may neither frame the dashboard nor open its websocket.

Streamlit itself lets in any port of this machine, and whoever names no origin.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_REFUSED = 1008  # the close code for a broken policy


class OwnPagesOnly:
    """ASGI middleware around all of Streamlit."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket" and not _is_own(Headers(scope=scope)):
            await receive()
            await send({"type": "websocket.close", "code": _REFUSED})
            return

        async def framed_by_nobody(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["Content-Security-Policy"] = "frame-ancestors 'self'"
                headers["X-Frame-Options"] = "SAMEORIGIN"
            await send(message)

        await self._app(scope, receive, framed_by_nobody if scope["type"] == "http" else send)


def _is_own(headers: Headers) -> bool:
    """Whether a page that this very server sent asks: its origin has the host and the port that it asks at."""
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc == headers.get("host")
