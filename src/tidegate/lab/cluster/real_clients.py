"""The clients of E2.1 and E2.2 on real brokers: publishers or subscribers, as a process of its own.

The specification comes by standard input, as one line of JSON; the result goes to the file that it names.

Publishers write packets to sockets, since nothing else is asked of them; subscribers are `tidegate.client.Client`,
which follows where it is sent. Times are those of the machine's monotonic clock, which all processes share.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import sys
import time
from pathlib import Path
from random import Random
from typing import Any, Final

from tidegate.client import Client, Message
from tidegate.errors import TidegateError

STAMP: Final = struct.Struct("!d")
HEADER: Final = 9  # bytes of a PUBLISH of QoS 0 with a topic of three bytes and up to 16 383 bytes
TICK: Final = 0.004


def topic_name(number: str) -> str:
    """Three bytes, so that a packet of any topic has the same header."""
    return f"t{int(number):02d}"


# -- publishers -------------------------------------------------------------------------------------------------------


class _Publisher:
    """One connection; PUBLISH at QoS 0, evenly, and faster from the burst on."""

    def __init__(
        self, host: str, port: int, name: str, topic: str, size: int, phase: float, rate: float
    ) -> None:
        self.sock = socket.create_connection((host, port), timeout=10)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client_id = name.encode()
        body = b"\0\4MQTT\5\2\0\0\0" + len(client_id).to_bytes(2, "big") + client_id
        self.sock.sendall(bytes((0x10, len(body))) + body)
        if self.sock.recv(1_024)[:1] != b"\x20":
            raise RuntimeError(f"{name} was refused")
        self.sock.setblocking(False)
        encoded = topic.encode()
        left = size - 3
        self._head = bytes((0x30, left & 0x7F | 0x80, left >> 7)) + len(encoded).to_bytes(2, "big") + encoded
        self._tail = bytes(size - HEADER - STAMP.size)
        self._rate = rate
        self._due = phase / rate
        self._rest = b""
        self.sent = 0

    def skip(self, seconds: float) -> None:
        """What was due before this process had started is not sent all at once."""
        self._due += seconds

    def serve(self, elapsed: float, factor: float) -> None:
        out = [self._rest]
        step = 1.0 / (self._rate * factor)
        while self._due <= elapsed:
            self._due += step
            stamp = STAMP.pack(time.monotonic())
            out.append(self._head + b"\0" + stamp + self._tail)
            self.sent += 1
        data = b"".join(out)
        try:
            self._rest = data[self.sock.send(data) :] if data else b""
        except BlockingIOError:
            self._rest = data


def publish(spec: dict[str, Any]) -> dict[str, Any]:
    random = Random(spec["seed"])
    publishers = []
    for number, topic in spec["topics"].items():
        for n in range(topic["publishers"]):
            made = _Publisher(
                spec["host"], spec["port"], f"p{number}-{n}", topic_name(number), topic["size"], random.random(),
                topic["rate"],
            )  # fmt: skip
            publishers.append((made, number in spec["burst"], number))
    began = spec["began"]
    late = max(0.0, time.monotonic() - began)
    for made, _, _ in publishers:
        made.skip(late)
    while (now := time.monotonic()) < spec["until"]:
        for made, is_bursting, _ in publishers:
            made.serve(now - began, 2.0 if is_bursting and now >= spec["burst_at"] else 1.0)
        time.sleep(max(0.0, now + TICK - time.monotonic()))
    sent: dict[str, int] = {}
    for made, _, number in publishers:
        sent[number] = sent.get(number, 0) + made.sent
    return {"sent": sent}


# -- subscribers ------------------------------------------------------------------------------------------------------


class _Topic:
    """What arrived of one topic."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.count = 0
        self.missed = 0
        self.worst = 0.0
        self.worst_by_second: dict[int, float] = {}

    def note(self, message: Message) -> None:
        now = time.monotonic()
        delay = now - STAMP.unpack_from(message.payload)[0]
        self.count += 1
        self.missed += delay > self.limit
        if delay > self.worst:
            self.worst = delay
        second = int(now)
        if delay > self.worst_by_second.get(second, 0.0):
            self.worst_by_second[second] = delay


async def subscribe(spec: dict[str, Any]) -> dict[str, Any]:
    topics = {number: _Topic(topic["limit"]) for number, topic in spec["topics"].items()}
    clients: list[Client] = []
    balancing: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    offset = time.time() - time.monotonic()

    async def place(number: str, topic: dict[str, Any]) -> None:
        for n in range(topic["subscribers"]):
            client = Client(
                topic["address"], client_id=f"s{number}-{n}", session_expiry_interval=60, reconnect=True,
                reconnect_min_delay=0.05, reconnect_max_delay=0.5, receive_maximum=65_535, receive_queue_size=65_535,
                reports="off", keep_alive=0,
            )  # fmt: skip
            await client.connect()
            clients.append(client)
            await client.subscribe(topic_name(number), callback=topics[number].note)

    async def watch() -> None:
        async with Client(spec["head"], client_id="watcher", max_redirects=0) as watcher:
            await watcher.subscribe("$SYS/cluster/balancing")
            async for message in watcher.messages:
                state = json.loads(message.payload)
                balancing.append({"t": time.monotonic(), **state})

    watching = loop.create_task(watch())
    for number, topic in spec["topics"].items():
        await asyncio.sleep(max(0.0, topic["at"] - time.monotonic()))
        await place(number, topic)
    await asyncio.sleep(max(0.0, spec["until"] - time.monotonic()))
    watching.cancel()
    result = {
        "topics": {
            number: {
                "count": each.count,
                "missed": each.missed,
                "worst": each.worst,
                "worst_by_second": [
                    [at - spec["began"], delay] for at, delay in each.worst_by_second.items()
                ],
            }
            for number, each in topics.items()
        },
        "reconnects": sum(int(client.statistics()["reconnects"]) for client in clients),
        "balancing": [
            {
                "t": each["t"] - spec["began"],
                "phases": [phase | {"at": phase["at"] - offset - spec["began"]} for phase in each["phases"]],
                "edges": each["edges"],
            }
            for each in balancing
        ],
    }
    await asyncio.gather(*(client.disconnect() for client in clients), return_exceptions=True)
    return result


def main() -> None:
    spec = json.loads(sys.stdin.readline())
    if spec["role"] == "publishers":
        result = publish(spec)
    else:
        import uvloop

        result = uvloop.run(subscribe(spec))
    Path(spec["result"]).write_text(json.dumps(result))


if __name__ == "__main__":
    try:
        main()
    except TidegateError as error:
        sys.exit(f"error: {error}")
