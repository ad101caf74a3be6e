"""The demo's flood, one process: `python -m tidegate.demo.flood HOST PORT COUNT`.

Clients that send ten messages a second, so that the node learns their habit; on `go` as fast as their sockets take it,
on `stop` as before. They answer nothing and ping, as a device with a stuck loop would.
"""

from __future__ import annotations

import selectors
import socket
import sys
import time
from typing import Final

from tidegate.mqtt import Connect, Publish, encode_packet

CALM_INTERVAL: Final = 0.1
BURST: Final = 64  # messages in one write
PING_INTERVAL: Final = 5.0
KEEP_ALIVE: Final = 20
PINGREQ: Final = b"\xc0\x00"


class Flooder:
    """One client."""

    def __init__(self, host: str, port: int, number: int) -> None:
        name = f"camera-{number}"
        self.sock = socket.create_connection((host, port), 10)
        self.sock.sendall(encode_packet(Connect(client_id=name, keep_alive=KEEP_ALIVE, protocol_level=4), 4))
        if len(self.sock.recv(4, socket.MSG_WAITALL)) < 4:
            raise ConnectionError(f"{name} was refused")
        self.sock.setblocking(False)
        self.one = encode_packet(Publish(topic=f"yard/{name}", payload=b"\0" * 100), 4)
        self.left = memoryview(b"")
        self.next_at = time.monotonic()
        self.ping_at = self.next_at + PING_INTERVAL

    def send(self, now: float, is_flood: bool) -> None:
        if not len(self.left):
            if now >= self.ping_at:
                self.ping_at = now + PING_INTERVAL
                self.left = memoryview(PINGREQ)
            elif is_flood:
                self.left = memoryview(self.one * BURST)
            elif now >= self.next_at:
                self.next_at = max(now, self.next_at + CALM_INTERVAL)
                self.left = memoryview(self.one)
            else:
                return
        try:
            self.left = self.left[self.sock.send(self.left) :]
        except BlockingIOError:
            pass

    def drain(self) -> None:
        """PINGRESP and the like."""
        try:
            if not self.sock.recv(4_096):
                raise ConnectionError("the node ended the connection")
        except BlockingIOError:
            pass


def main(host: str, port: int, count: int) -> None:
    flooders = [Flooder(host, port, number + 1) for number in range(count)]
    selector = selectors.DefaultSelector()
    for flooder in flooders:
        selector.register(flooder.sock, selectors.EVENT_READ, flooder)
    selector.register(sys.stdin, selectors.EVENT_READ, None)
    is_flood = False
    print("ready", flush=True)
    while True:
        now = time.monotonic()
        for flooder in flooders:
            flooder.send(now, is_flood)
        # In a flood the sockets set the pace: wait for one that takes something.
        for flooder in flooders:
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if is_flood or len(flooder.left) else 0)
            selector.modify(flooder.sock, wanted, flooder)
        for key, events in selector.select(0.5 if is_flood else CALM_INTERVAL / 4):
            if key.data is None:
                line = sys.stdin.readline()
                if not line:
                    return
                is_flood = line.strip() == "go"
            elif events & selectors.EVENT_READ:
                key.data.drain()


if __name__ == "__main__":
    try:
        main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    except (KeyboardInterrupt, ConnectionError):
        pass
