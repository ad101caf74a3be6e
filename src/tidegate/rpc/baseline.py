"""The thesis's baseline, for comparison: RPC over HTTP, where a router keeps its caller in memory.

`POST /route` with a request waits for the response on a shared subscription: 200 for ACK, 502 for NACK, 504 after the
timeout. A response that another replica's caller waits for is dropped, which is the misrouting the backbone is about.
The HTTP here is as much as that needs: keep-alive, Content-Length, one request at a time on a connection.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from typing import Any

from tidegate.client import Message
from tidegate.rpc.opened import Opened
from tidegate.rpc.options import Options, new_name

log = logging.getLogger(__name__)

GROUP = "router-baseline-group"
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 502: "Bad Gateway", 504: "Gateway Timeout"}
_MAX_BODY = 1 << 20


class HttpRouter(Opened):
    """One replica, on a port of 127.0.0.1 (0: any). Safe only if it is the only one."""

    def __init__(
        self,
        options: Options,
        *,
        gateway: str = "000000000000",
        timeout: float = 60.0,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.port = port
        self.counters: Counter[str] = Counter()
        self._host = host
        self._timeout = timeout
        self._gateway = gateway
        self._client = options.client(new_name("baseline"), session_expiry_interval=0)
        self._waiting: dict[str, asyncio.Future[bool]] = {}
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()

    async def open(self) -> None:
        await self._client.connect()
        await self._client.subscribe(f"$share/{GROUP}//gw/+/response", qos=1, callback=self._on_response)
        self._server = await asyncio.start_server(self._serve, self._host, self.port)
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in list(self._connections):
            writer.close()
        for waiter in self._waiting.values():
            waiter.cancel()
        if self._server is not None:
            await self._server.wait_closed()
        await self._client.disconnect()

    async def wait_closed(self) -> None:
        await self._client.wait_closed()

    def statistics(self) -> dict[str, int]:
        return dict(self.counters)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            while (request := await _read_request(reader)) is not None:
                method, path, body = request
                status = 404
                if (method, path) == ("POST", "/route"):
                    status = await self._route(body)
                self.counters[f"status {status}"] += 1
                writer.write(
                    f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Length: 0\r\n\r\n".encode("ascii")
                )
                await writer.drain()
        except (OSError, ValueError, asyncio.IncompleteReadError):
            self.counters["connections broken"] += 1
        except asyncio.CancelledError:
            pass  # closed while its caller waited
        finally:
            self._connections.discard(writer)
            writer.close()

    async def _route(self, body: bytes) -> int:
        try:
            device = json.loads(body)["deviceMac"]
        except (ValueError, KeyError, TypeError):
            return 400
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting[device] = waiter  # a second caller for one device takes the first one's place
        try:
            async with asyncio.timeout(self._timeout):
                await self._client.publish(f"/gw/{self._gateway}/action", body, qos=1)
                return 200 if await waiter else 502
        except TimeoutError:
            return 504
        finally:
            if self._waiting.get(device) is waiter:
                del self._waiting[device]

    def _on_response(self, message: Message) -> None:
        try:
            content: Any = message.json()
            rows = content if isinstance(content, list) else [content]
            for row in rows:
                waiter = self._waiting.get(row["deviceMac"])
                if waiter is None or waiter.done():
                    self.counters["misrouted"] += 1
                else:
                    waiter.set_result(bool(row["ack"]))
        except (ValueError, KeyError, TypeError):
            self.counters["malformed"] += 1


async def _read_request(reader: asyncio.StreamReader) -> tuple[str, str, bytes] | None:
    line = await reader.readline()
    if not line:
        return None
    method, path, _ = line.decode("ascii").split(" ", 2)
    return method, path, await _read_body(reader)


async def _read_body(reader: asyncio.StreamReader) -> bytes:
    length = 0
    while (line := await reader.readline()) not in (b"\r\n", b"\n", b""):
        name, _, value = line.decode("latin-1").partition(":")
        if name.strip().lower() == "content-length":
            length = int(value)
    if not 0 <= length <= _MAX_BODY:
        raise ValueError(f"a body of {length} bytes")
    return await reader.readexactly(length)


class HttpCaller:
    """A worker's side of it: one connection, one request at a time."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._host, self._port = host, port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, request: dict[str, Any]) -> int:
        """The status of the answer; raises OSError."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        body = json.dumps(request, separators=(",", ":")).encode()
        head = f"POST /route HTTP/1.1\r\nHost: {self._host}\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode("ascii") + body)
        line = await reader.readline()
        if not line:
            raise ConnectionResetError("the router closed the connection")
        await _read_body(reader)
        return int(line.split(b" ")[1])

    async def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
