"""MQTT over WebSocket, the server's end: answer the HTTP upgrade, then be a byte stream.

The inner protocol is made only when the upgrade is done, so it never sees a connection that is not a
WebSocket. What happens to frames afterwards is in `framing`, the other end in `websocket_client`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import cast

from websockets.datastructures import Headers
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from tidegate.net.doorway import Doorway, Newcomer
from tidegate.net.framing import WebSocketLink, library_log
from tidegate.net.origins import may_come

# The client must offer "mqtt" and the server must select it [MQTT5-6.0.0-3] [MQTT5-6.0.0-4]; "mqttv3.1" is
# what clients from before the standard offer.
SUBPROTOCOLS = [Subprotocol("mqtt"), Subprotocol("mqttv3.1")]

# Browsers send a few KiB of cookies and tokens; the library alone would take 1 MiB of headers.
MAX_HEAD_BYTES = 32 * 1024

REFUSED_PAGE = (
    "Pages from {0!r} may not connect here. Is this page yours? Then name it at the listener: origins = [{0!r}]\n"
)
END_OF_HEADERS = b"\r\n\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSocketOptions:
    """How a listener upgrades connections. Times in seconds.

    `paths` None accepts every path. `origins` are the pages that browsers may come from; empty: pages of the same
    origin, `*`: any. `max_frame_bytes` bounds what is held for one frame, and if not 0 `max_first_bytes` until the
    inner protocol has handed the connection on; a message may be longer if it comes in fragments.
    """

    paths: tuple[str, ...] | None = ("/", "/mqtt")
    origins: tuple[str, ...] = ()
    max_frame_bytes: int = 1_048_576 + 65_536
    handshake_timeout: float = 10.0
    close_timeout: float = 5.0
    max_first_bytes: int = 0


@dataclass(slots=True, eq=False)
class Upgrades:
    """Connections of one listener that are not WebSockets yet, and what became of the others."""

    pending: set[WebSocketServer] = field(default_factory=set)
    done: int = 0
    failed: int = 0

    def abort_pending(self) -> None:
        for link in tuple(self.pending):
            link.abort()


class WebSocketServer(WebSocketLink):
    """The server's end of one connection; `inner_factory` is called once the upgrade is done."""

    frames: ServerProtocol

    def __init__(
        self,
        inner_factory: Callable[[], asyncio.Protocol],
        options: WebSocketOptions,
        upgrades: Upgrades | None = None,
        door: Doorway | None = None,
    ) -> None:
        first = options.max_first_bytes or options.max_frame_bytes
        super().__init__(
            ServerProtocol(subprotocols=SUBPROTOCOLS, max_size=(None, first), logger=library_log),
            close_timeout=options.close_timeout,
            max_frame_bytes=first,
            is_client=False,
        )
        self._door = Doorway() if door is None else door
        self._is_new = self._reader.is_new = first < options.max_frame_bytes
        self._inner_factory = inner_factory
        self._options = options
        self._upgrades = Upgrades() if upgrades is None else upgrades
        self._request = bytearray()
        self._is_upgraded = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.outer = cast(asyncio.Transport, transport)
        self._door.enter(self, transport)
        self._upgrades.pending.add(self)
        self._set_deadline(self._options.handshake_timeout)

    def data_received(self, data: bytes) -> None:
        if self._is_new and self._is_upgraded:
            self._newcomer_received(data)
        elif self._is_upgraded:
            super().data_received(data)
        elif not self._is_closing:
            self._request_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self in self._upgrades.pending:
            self._upgrades.pending.discard(self)
            self._upgrades.failed += 1
        self._door.leave(self)
        super().connection_lost(exc)

    def _newcomer_received(self, data: bytes) -> None:
        """By the first frame it may become a client, who may send larger ones: those are looked at once more."""
        super().data_received(data)
        if not self._is_new and not self._is_deaf and not self._reader.has_more and self._reader.held_bytes:
            super().data_received(b"")
        if self._is_new:
            self._door.hold(cast(Newcomer, self.inner), self._reader.held_bytes, is_framed=True)

    def handed_on(self) -> None:
        """What was a newcomer is a client."""
        if self._is_new:
            self._is_new = self._reader.is_new = False
            self._reader.max_frame_bytes = self.frames.max_fragment_size = self._options.max_frame_bytes

    def _request_received(self, data: bytes) -> None:
        """Gather the request, apart from frames an eager client may have sent right behind it."""
        request = self._request
        searched = max(0, len(request) - len(END_OF_HEADERS) + 1)
        request += data
        end = request.find(END_OF_HEADERS, searched)
        if end < 0:
            if not 0x41 <= request[0] <= 0x5A:
                # No HTTP method begins like this, but MQTT and TLS do: no answer would be understood.
                self.abort()
            elif len(request) > MAX_HEAD_BYTES:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The request is too long.\n")
            return
        end += len(END_OF_HEADERS)
        rest = bytes(request[end:])
        self.frames.receive_data(bytes(request[:end]))
        request.clear()
        events = self.frames.events_received()
        if events:
            self._answer(cast(Request, events[0]))
        else:
            # The library did not understand it and has already queued its answer, if any.
            self._finish_refusal()
        if rest and self._is_upgraded and not self._is_closing:
            self.data_received(rest)

    def _answer(self, request: Request) -> None:
        path = request.path.partition("?")[0]
        if self._options.paths is not None and path not in self._options.paths:
            known = ", ".join(self._options.paths)
            self._refuse(HTTPStatus.NOT_FOUND, f"There is no MQTT here. Known paths: {known}\n")
            return
        origins = request.headers.get_all("Origin")
        if not may_come(origins, request.headers.get_all("Host"), self._options.origins):
            self._refuse(HTTPStatus.FORBIDDEN, REFUSED_PAGE.format(origins[0][:200]))
            return
        self.frames.send_response(self.frames.accept(request))
        if self.frames.state is not State.OPEN:
            self._finish_refusal()
            return
        self._cancel_deadline()
        self._upgrades.pending.discard(self)
        self._upgrades.done += 1
        self._is_upgraded = True
        self._flush()
        self._connect_inner(
            self._inner_factory(),
            {
                "http_headers": plain_headers(request.headers),
                "http_path": request.path,
                "subprotocol": self.frames.subprotocol,
            },
        )
        self._door.leave(self)

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        self.frames.send_response(self.frames.reject(status, text))
        self._finish_refusal()

    def _finish_refusal(self) -> None:
        self._enter_closing()
        self._flush()


def plain_headers(headers: Headers) -> dict[str, str]:
    """Lower-case names; a header that comes several times has its values joined, as RFC 9110 5.3 allows."""
    plain: dict[str, str] = {}
    for name, value in headers.raw_items():
        key = name.lower()
        plain[key] = f"{plain[key]}, {value}" if key in plain else value
    return plain
