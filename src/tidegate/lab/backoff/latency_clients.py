"""Clients of E1.3 over sockets: a sender of stated load, which also times the rare messages, and a reader.

Fast publishers send QoS 0 messages at random moments (Poisson, open loop) that many subscribers get, so that a message
costs the broker a lot and its sender little. The subscribers are read by a process of their own, in large pieces and
now and then. The rare sender's messages carry their time and come back to a subscriber here.
"""

from __future__ import annotations

import select
import socket
import struct
import sys
import time
from contextlib import ExitStack
from random import Random
from typing import Final

from tidegate.lab.errors import LabError
from tidegate.load import packets

FAST_FILTER: Final = "fast/#"
PAYLOAD_BYTES: Final = 64
READ_EVERY: Final = 0.005  # seconds between two looks at what subscribers got
TIMEOUT: Final = 10.0
LATE: Final = 0.001
DRAIN: Final = 3.0  # seconds for what is on its way when sending ends
_STAMP = struct.Struct(">d")


def connect(port: int, client_id: str, topic_filter: str = "") -> socket.socket:
    """An MQTT 3.1.1 connection, subscribed if a filter is given; raises `LabError`."""
    sock = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(packets.connect(client_id, protocol=4))
    if sock.recv(4, socket.MSG_WAITALL)[3:] != b"\0":
        raise LabError(f"{client_id} was not let in")
    if topic_filter:
        sock.sendall(packets.subscribe(1, topic_filter, qos=0, protocol=4))
        sock.recv(5, socket.MSG_WAITALL)
    return sock


class Load:
    """`publishers` fast senders, one rare sender and its subscriber; a context manager."""

    def __init__(self, port: int, publishers: int, seed: int) -> None:
        self._stack = ExitStack()
        self._random = Random(f"{seed}/load")
        try:
            self._fast = [self._open(port, f"fast{number}") for number in range(publishers)]
            self._rare = self._open(port, "rare")
            self._echo = self._open(port, "echo", "rare")
        except BaseException:
            self._stack.close()
            raise
        payload = bytes(PAYLOAD_BYTES)
        self._packets = [
            packets.publish(f"fast/{number:02d}", payload, qos=0, protocol=4) for number in range(publishers)
        ]
        self._data = b""
        self._began = 0.0
        self._latencies: list[float] = []
        self.rare_sent = 0
        self.sent = 0
        self.late = 0  # sent more than a millisecond after their time
        self.blocked = 0  # the socket was full

    def _open(self, port: int, client_id: str, topic_filter: str = "") -> socket.socket:
        return self._stack.enter_context(connect(port, client_id, topic_filter))

    def __enter__(self) -> Load:
        for sock in (*self._fast, self._rare, self._echo):
            sock.setblocking(False)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, seconds: float, rate: float, rare_rate: float) -> list[float]:
        """Send for a while, `rate` messages a second in all; gives the latencies of rare messages in seconds."""
        random = self._random
        clock = time.perf_counter
        self._began = began = clock()
        self._latencies = []
        self.sent = self.late = self.blocked = self.rare_sent = 0
        due = began + random.expovariate(rate)
        rare_due = began + random.expovariate(rare_rate)
        while (now := clock()) < began + seconds:
            if select.select([self._echo], [], [], max(0.0, min(due, rare_due) - now))[0]:
                self._receive()
            now = clock()
            if now >= rare_due:
                self._rare.send(packets.publish("rare", _STAMP.pack(clock()), qos=0, protocol=4))
                self.rare_sent += 1
                rare_due += random.expovariate(rare_rate)
            # Many at once if we are late: an open loop does not forget what it owes.
            while due <= now:
                self._send(random.randrange(len(self._fast)))
                self.late += now - due > LATE
                due += random.expovariate(rate)
        deadline = clock() + DRAIN
        while len(self._latencies) < self.rare_sent and clock() < deadline:
            if select.select([self._echo], [], [], 0.05)[0]:
                self._receive()
        return self._latencies

    def _send(self, number: int) -> None:
        try:
            self._fast[number].send(self._packets[number])
        except BlockingIOError:
            self.blocked += 1
        self.sent += 1

    def _receive(self) -> None:
        now = time.perf_counter()
        data = self._data + self._echo.recv(65_536)
        size = 2 + 2 + len("rare") + _STAMP.size
        while len(data) >= size:
            sent = _STAMP.unpack_from(data, size - _STAMP.size)[0]
            # What an overloaded broker still owed from an earlier run is not this run's.
            if sent >= self._began:
                self._latencies.append(now - sent)
            data = data[size:]
        self._data = data


def read(port: int, subscribers: int) -> None:
    """Read for subscribers of everything fast until the standard input is closed."""
    with ExitStack() as stack:
        socks = [
            stack.enter_context(connect(port, f"reader{number}", FAST_FILTER))
            for number in range(subscribers)
        ]
        print("ready", flush=True)  # the parent waits for it
        while not select.select([sys.stdin], [], [], READ_EVERY)[0]:
            for sock in select.select(socks, [], [], 0.0)[0]:
                if not sock.recv(1_048_576):
                    return


if __name__ == "__main__":
    read(int(sys.argv[1]), int(sys.argv[2]))
