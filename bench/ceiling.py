"""How fast the load tool itself is: pairs at QoS 0 against a peer that hands chunks on unseen.

A figure for a broker means little if the tool is the limit. Run `python bench/ceiling.py`: it prints the
messages a second that the tool sends and receives, with every count and sequence number checked as in any
other run.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import socket
import sys
from typing import cast

import uvloop

from tidegate import load
from tidegate.load.streams import packet_bounds

_SUBSCRIBERS: dict[bytes, asyncio.Transport] = {}


class Reflector(asyncio.Protocol):
    """Answers CONNECT and SUBSCRIBE (MQTT 3.1.1); then forwards all to the first topic's subscriber."""

    def __init__(self) -> None:
        self._head = b""
        self._target: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._target is not None:
            self._target.write(data)
            return
        self._head += data
        while self._head and (bounds := packet_bounds(self._head, 0)):
            kind, body = self._head[0] >> 4, self._head[bounds[0] : bounds[1]]
            if kind == 3:
                self._target = _SUBSCRIBERS[body[2 : 2 + int.from_bytes(body[:2], "big")]]
                self._target.write(self._head)
                return
            if kind == 1:
                self._transport.write(b"\x20\x02\x00\x00")
            elif kind == 8:
                _SUBSCRIBERS[body[4:-1]] = self._transport
                self._transport.write(b"\x90\x03" + body[:2] + b"\x00")
            self._head = self._head[bounds[1] :]


async def _serve(listener: socket.socket) -> None:
    server = await asyncio.get_running_loop().create_server(Reflector, sock=listener)
    await server.serve_forever()


def _main(listener: socket.socket) -> None:
    uvloop.run(_serve(listener))


def measure(seconds: float) -> load.Result:
    """Return the result of a run against the reflector."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    process = multiprocessing.get_context("fork").Process(target=_main, args=(listener,), daemon=True)
    process.start()
    try:
        return load.run(mode="pairs", port=listener.getsockname()[1], pid=process.pid, seconds=seconds)
    finally:
        process.terminate()
        process.join()
        listener.close()


if __name__ == "__main__":
    print(json.dumps(measure(float(sys.argv[1]) if len(sys.argv) > 1 else 3.0).as_dict(), indent=2))
