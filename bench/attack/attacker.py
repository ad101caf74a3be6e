"""One attack: some connections of one way into the node that send one stream, in a process of its own.

`python -m bench.attack.attacker` reads a JSON document (`Orders`) and prints one about what it did.
"""

from __future__ import annotations

import json
import random
import select
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.attack import streams
from bench.attack.wires import Way, discard

PATIENCE = 30.0
BURST = 0.05  # seconds of the rate that may be sent at once
AGAIN = 0.02  # seconds until a connection that ended is made anew


@dataclass(frozen=True, kw_only=True)
class Orders:
    """`reads`: whether it reads what the node answers."""

    way: dict[str, Any]
    stream: str
    seed: int
    connections: int
    seconds: float
    rate: float  # bytes a second
    reads: bool = True


@dataclass(kw_only=True)
class Done:
    sent_bytes: int = 0
    dialled: int = 0  # connections made
    refused: int = 0  # or not
    ended: int = 0  # by the node


class Line:
    """One connection, made again when it ends."""

    def __init__(self, orders: Orders, way: Way, number: int, done: Done) -> None:
        self._orders = orders
        self._way = way
        self._number = number
        self._done = done
        self._random = random.Random(f"{orders.seed} {number}")
        self._again_at = 0.0
        self._rest = b""
        self._part = b""  # of it, that is being sent: TLS wants the same again if the socket was full
        self._stream: Iterator[bytes] = iter(())
        self.sock: socket.socket | None = None

    def open(self) -> None:
        """Dial, and log in if the stream is that of a client."""
        if time.monotonic() < self._again_at:
            return
        self._again_at = time.monotonic() + AGAIN
        name = self._orders.stream
        make = streams.ALL[name]
        try:
            sock = self._way.dial(self._number)
            if name not in streams.NEWCOMERS:
                is_new = self._orders.seed % 2 == 0  # else with all that earlier attacks left in its session
                sock.sendall(self._way.wrap(streams.connect(f"m{self._number}", clean_start=is_new)))
                if not sock.recv(1_000):
                    raise ConnectionResetError
            sock.setblocking(False)
        except OSError:
            self._done.refused += 1
            return
        self._done.dialled += 1
        self.sock = sock
        self._stream = make(streams.By(self._random, self._number))
        self._rest = self._part = b""

    def go_on(self, most: int) -> int:
        """Send up to so many bytes; gives how many went."""
        sock = self.sock
        if sock is None:
            self.open()
            return 0
        if self._orders.reads and not discard(sock):
            self._end()
            return 0
        if not self._rest:
            chunk = next(self._stream, b"")
            is_raw = self._orders.stream in streams.FRAMES
            self._rest = chunk if is_raw or not chunk else self._way.wrap(chunk)
        self._part = self._part or self._rest[:most]
        try:
            sent = sock.send(self._part) if self._part else 0
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return 0
        except OSError:
            self._end()
            return 0
        self._rest = self._rest[sent:]
        self._part = self._part[sent:]
        self._done.sent_bytes += sent
        return sent

    def _end(self) -> None:
        self._done.ended += 1
        self.close()

    def close(self) -> None:
        if self.sock is not None:
            self.sock.close()
            self.sock = None


def attack(orders: Orders) -> Done:
    done = Done()
    way = Way(**(orders.way | {"path": Path(orders.way["path"]) if orders.way.get("path") else None}))
    lines = [Line(orders, way, number, done) for number in range(orders.connections)]
    began = time.monotonic()
    try:
        while (now := time.monotonic()) - began < orders.seconds:
            sent = 0
            for line in lines:
                room = int(orders.rate * (now - began + BURST)) - done.sent_bytes
                if room <= 0:
                    break
                sent += line.go_on(min(room, 262_144))
            lines = lines[1:] + lines[:1]
            if not sent:
                select.select([], [], [], 0.002)
    finally:
        for line in lines:
            line.close()
    return done


def run(orders: Orders) -> Done:
    """In a process of its own."""
    found = subprocess.run(
        [sys.executable, "-m", "bench.attack.attacker"],
        input=json.dumps(asdict(orders)), capture_output=True, text=True, check=True, timeout=orders.seconds + PATIENCE,
    )  # fmt: skip
    return Done(**json.loads(found.stdout))


if __name__ == "__main__":
    print(json.dumps(asdict(attack(Orders(**json.load(sys.stdin))))))
