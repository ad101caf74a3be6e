"""MQTT over WebSocket, the client's end: ask for the HTTP upgrade, then be a byte stream."""

from __future__ import annotations

import asyncio
import ssl as ssl_module
from collections.abc import Callable, Mapping
from typing import cast

from websockets.client import ClientProtocol
from websockets.http11 import Response
from websockets.uri import WebSocketURI

from tidegate.net.addresses import Endpoint
from tidegate.net.errors import WebSocketRefused
from tidegate.net.framing import WebSocketLink, library_log
from tidegate.net.websocket import END_OF_HEADERS, MAX_HEAD_BYTES, SUBPROTOCOLS, plain_headers

# The longest MQTT packet (MQTT5 section 2.1.4: four bytes of Remaining Length) with its header.
LONGEST_PACKET_BYTES = 268_435_455 + 5

_STATUS_LINE = b"HTTP/1.1 "


class WebSocketClient(WebSocketLink):
    """The client's end of one connection; `opened` gives the inner transport and protocol, or the error."""

    frames: ClientProtocol

    def __init__(
        self,
        inner_factory: Callable[[], asyncio.Protocol],
        endpoint: Endpoint,
        *,
        headers: Mapping[str, str] | None = None,
        max_frame_bytes: int = LONGEST_PACKET_BYTES,
        close_timeout: float = 5.0,
    ) -> None:
        path, _, query = endpoint.path.partition("?")
        uri = WebSocketURI(endpoint.tls, endpoint.host, endpoint.port, path, query)
        super().__init__(
            ClientProtocol(
                uri, subprotocols=SUBPROTOCOLS[:1], max_size=(None, max_frame_bytes), logger=library_log
            ),
            close_timeout=close_timeout,
            max_frame_bytes=max_frame_bytes,
            is_client=True,
        )
        self._inner_factory = inner_factory
        self._endpoint = endpoint
        self._headers = dict(headers or {})
        self._response = bytearray()
        self._head_is_complete = False
        self._is_upgraded = False
        self.opened: asyncio.Future[tuple[asyncio.Transport, asyncio.Protocol]] = (
            asyncio.get_running_loop().create_future()
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.outer = cast(asyncio.Transport, transport)
        request = self.frames.connect()
        for name, value in self._headers.items():
            request.headers[name] = value
        self.frames.send_request(request)
        self._flush()

    def data_received(self, data: bytes) -> None:
        if self._is_upgraded:
            super().data_received(data)
        elif not self._is_closing:
            self._response_received(data)

    def eof_received(self) -> bool | None:
        if not self.opened.done():
            # An answer without Content-Length ends with the connection, so it may be complete only now.
            self.frames.receive_data(bytes(self._response))
            self.frames.receive_eof()
            self._judge_response()
            self._fail_opening("the server closed the connection during the upgrade", status=None)
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail_opening(f"the connection was lost during the upgrade ({exc or 'closed'})", status=None)
        super().connection_lost(exc)

    def _response_received(self, data: bytes) -> None:
        """Gather the answer's headers, apart from the frames that may follow right behind them."""
        if self._head_is_complete:
            # A refusal with a body: the library reads it to its end before it reports the status.
            self.frames.receive_data(data)
            self._judge_response()
            return
        response = self._response
        response += data
        end = response.find(END_OF_HEADERS)
        if end < 0:
            if not response.startswith(_STATUS_LINE[: len(response)]) or len(response) > MAX_HEAD_BYTES:
                self._fail_opening("the answer is not HTTP/1.1", status=None)
            return
        end += len(END_OF_HEADERS)
        self._head_is_complete = True
        head, rest = bytes(response[:end]), bytes(response[end:])
        response.clear()
        self.frames.receive_data(head)
        self._judge_response()
        if rest:
            self.data_received(rest)

    def _judge_response(self) -> None:
        events = self.frames.events_received()
        response = events[0] if events else None
        problem = self.frames.handshake_exc
        if problem is not None:
            status = response.status_code if isinstance(response, Response) else None
            self._fail_opening(str(problem), status=status)
        elif isinstance(response, Response):
            if self.frames.subprotocol is None:
                # [MQTT5-6.0.0-4]
                self._fail_opening("the server did not select the subprotocol mqtt", status=101)
                return
            self._is_upgraded = True
            facts = {
                "http_headers": plain_headers(response.headers),
                "subprotocol": self.frames.subprotocol,
            }
            transport = self._connect_inner(self._inner_factory(), facts)
            if not self.opened.done():
                self.opened.set_result((transport, self.inner))

    def _fail_opening(self, problem: str, *, status: int | None) -> None:
        if not self.opened.done():
            self.opened.set_exception(
                WebSocketRefused(str(self._endpoint), problem, status=status, hint=_hint(status))
            )
            self.abort()


async def open_websocket(
    loop: asyncio.AbstractEventLoop,
    endpoint: Endpoint,
    protocol_factory: Callable[[], asyncio.Protocol],
    ssl: ssl_module.SSLContext | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    max_frame_bytes: int = LONGEST_PACKET_BYTES,
    close_timeout: float = 5.0,
) -> tuple[asyncio.Transport, asyncio.Protocol]:
    """Connect, upgrade, and return the inner transport and protocol.

    Raises `WebSocketRefused` or `OSError`. It has no deadline of its own: `dial` gives it one.
    """
    outer, link = await loop.create_connection(
        lambda: WebSocketClient(
            protocol_factory,
            endpoint,
            headers=headers,
            max_frame_bytes=max_frame_bytes,
            close_timeout=close_timeout,
        ),
        endpoint.host,
        endpoint.port,
        ssl=ssl,
    )
    try:
        return await link.opened
    except BaseException:
        outer.abort()
        raise


def _hint(status: int | None) -> str:
    match status:
        case None:
            return "is this a WebSocket port? mqtt:// and ws:// listeners have different ports"
        case 404:
            return "check the path; many brokers use /mqtt"
        case 401 | 403:
            return "the server wants other credentials or another Origin header"
        case _:
            return "the server may not offer MQTT over WebSocket here"
