"""A web page of one kind of text, for Prometheus: a thread of its own with a small HTTP server that nobody can fill.

It answers one request a connection. Connections that say nothing, or do not read, have a deadline and a bound, and give
way to others (`net.doorway`).
"""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import Final, cast

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from tidegate.net.doorway import Doorway
from tidegate.net.listen import listen

MOST: Final = 64  # connections at once
PATIENCE: Final = 5.0  # seconds from accept until the answer is read
MAX_HEAD: Final = 16_384  # bytes
SWEEP: Final = 0.5
TEXT: Final = "text/plain; charset=utf-8"


class MetricsPage:
    """Listens when it is made; raises `ListenError`. `stop` ends its thread."""

    def __init__(self, host: str, port: int, registry: CollectorRegistry) -> None:
        self._host = host
        self._wanted = port
        self._registry = registry
        self.port = 0
        self._door = Doorway(MOST)
        self._is_open = threading.Event()
        self._error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="tidegate-metrics", daemon=True)
        self._thread.start()
        self._is_open.wait()
        if self._error is not None:
            self._thread.join()
            raise self._error

    def stop(self) -> None:
        assert self._loop is not None and self._end is not None
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        try:
            listening = await listen(
                lambda: _Request(self._door, self._answer), host=self._host, port=self._wanted, door=self._door
            )
        except BaseException as error:  # noqa: BLE001 - for the thread that waits
            self._error = error
            self._is_open.set()
            return
        self.port = listening.port
        self._is_open.set()
        while not self._end.is_set():
            for late in self._door.expired(PATIENCE):
                late.abort()
            try:
                async with asyncio.timeout(SWEEP):
                    await self._end.wait()
            except TimeoutError:
                pass
        listening.close()
        for left in self._door:
            left.abort()
        await listening.wait_closed()

    def _answer(self, method: str, path: str, headers: dict[str, str]) -> bytes:
        path = path.partition("?")[0]
        if method not in ("GET", "HEAD"):
            return _response(HTTPStatus.METHOD_NOT_ALLOWED, TEXT, b"GET is all there is\n")
        if path != "/metrics":
            status = HTTPStatus.OK if path == "/" else HTTPStatus.NOT_FOUND
            return _response(status, TEXT, b"Tidegate: the metrics are at /metrics\n", is_bare=method == "HEAD")
        encode, kind = choose_encoder(headers.get("accept", ""))
        body = encode(self._registry)
        is_packed = "gzip" in headers.get("accept-encoding", "").lower()
        return _response(
            HTTPStatus.OK, kind, gzip.compress(body, 1) if is_packed else body, is_packed=is_packed,
            is_bare=method == "HEAD",
        )  # fmt: skip


class _Request(asyncio.Protocol):
    """One connection."""

    def __init__(self, door: Doorway, answer: Callable[[str, str, dict[str, str]], bytes]) -> None:
        self._door = door
        self._answer = answer
        self._head = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._door.enter(self, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._door.leave(self)
        self._transport = None

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._head += data
        head, end, _ = self._head.partition(b"\r\n\r\n")
        if not end and len(head) <= MAX_HEAD:
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        parts = first.split(" ")
        if not end or len(parts) != 3 or not parts[2].startswith("HTTP/1."):
            answer = _response(HTTPStatus.BAD_REQUEST, TEXT, b"this is no request\n")
        else:
            pairs = (line.partition(":") for line in lines)
            answer = self._answer(parts[0], parts[1], {name.strip().lower(): value.strip() for name, _, value in pairs})
        transport.write(answer)
        transport.close()


def _response(
    status: HTTPStatus, kind: str, body: bytes, *, is_packed: bool = False, is_bare: bool = False
) -> bytes:
    head = [f"HTTP/1.1 {status.value} {status.phrase}", f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
    head += ["Content-Encoding: gzip"] if is_packed else []
    return "\r\n".join([*head, "Connection: close", "", ""]).encode() + (b"" if is_bare else body)
