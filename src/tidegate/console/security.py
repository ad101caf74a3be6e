"""What every request must pass, and what every answer carries: Host, Origin, and headers that tie a browser's hands.

- Host: addresses, the machine's loopback names, and names that were given. A page of somebody else that makes its own
  name point here (DNS rebinding) is refused.
- Origin and Sec-Fetch-Site: a request that another site's page made is refused, whatever it asks for.
- Content-Security-Policy: our own files only, no inline script, no frames but sandboxed reports.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidegate.console.settings import ConsoleSettings
from tidegate.net.origins import host_name, is_fixed

MAX_BODY: Final = 65_536
PAGE_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# A report brings scripts of its own (plots). In a sandbox it has no origin: no cookie, no request to us.
REPORT_POLICY: Final = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data:; frame-ancestors 'self'; base-uri 'none'; form-action 'none'"
)
HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=()",
}


class Guard:
    """Middleware around the whole application."""

    def __init__(self, app: ASGIApp, settings: ConsoleSettings) -> None:
        self._app = app
        self._is_tls = settings.is_tls
        self._names = {name.lower() for name in settings.names}
        if settings.host not in ("", "0.0.0.0", "::", "*"):
            self._names.add(settings.host.lower())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        fault = self._fault(headers, scope["method"])
        if fault is not None:
            await _refuse(send, 403, *fault)
            return
        if (
            not headers.get("content-length", "0").isdecimal()
            or int(headers.get("content-length", "0")) > MAX_BODY
        ):
            await _refuse(send, 413, "too much was sent", "")
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._add_headers(MutableHeaders(scope=message), scope["path"])
            await send(message)

        await self._app(scope, _bounded(receive), send_guarded)

    def _add_headers(self, headers: MutableHeaders, path: str) -> None:
        for name, value in HEADERS.items():
            headers.setdefault(name, value)
        headers.setdefault("Content-Security-Policy", PAGE_POLICY)
        headers.setdefault("Cache-Control", "no-cache" if path.startswith("/static/") else "no-store")

    def _fault(self, headers: Headers, method: str) -> tuple[str, str] | None:
        host = headers.get("host", "")
        if not self.is_own_host(host):
            return f"this console is not called {host[:80]!r}", "start it with --name, or use its address"
        origin = headers.get("origin")
        scheme = "https" if self._is_tls else "http"
        if origin is not None and origin != f"{scheme}://{host}":
            return "the request came from another site", "open the console itself"
        site = headers.get("sec-fetch-site", "none")
        is_navigation = method == "GET" and headers.get("sec-fetch-mode", "") == "navigate"
        if site not in ("none", "same-origin") and not is_navigation:
            return "the request came from another site", "open the console itself"
        return None

    def is_own_host(self, host: str) -> bool:
        name = host_name(host)
        return name in self._names or is_fixed(name)


def _bounded(receive: Receive) -> Receive:
    """A body that says nothing of its length is cut off at the same bound."""
    seen = 0

    async def receive_bounded() -> Message:
        nonlocal seen
        message = await receive()
        if message["type"] == "http.request":
            seen += len(message.get("body", b""))
            if seen > MAX_BODY:
                return {"type": "http.disconnect"}
        return message

    return receive_bounded


async def _refuse(send: Send, status: int, error: str, hint: str) -> None:
    body = json.dumps({"error": error, "hint": hint}).encode()
    headers: Iterable[tuple[bytes, bytes]] = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        *((name.lower().encode(), value.encode()) for name, value in HEADERS.items()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})
