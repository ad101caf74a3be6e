"""One publisher and one subscriber in a process of their own: what does a client that is connected notice?

`python -m bench.soak.pair PORT` sends a message every 10 ms, whatever comes back (an open loop: a stall delays all
messages that fall into it, and all of them count). It takes commands on standard input, one a line: `mark` starts
a new interval, `end` ends the run. Each interval is answered with a line of JSON.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from tidegate.load import packets
from tidegate.load.result import percentile
from tidegate.load.usage import steal_seconds, waited_seconds

RATE = 100.0
TOPIC = "soak/pair"
WINDOW = 1_000  # messages, 10 s: a long quiet time after a stall must not hide it
LAST_SECONDS = 5.0  # for what is on its way when an interval ends
ANSWER_SECONDS = 60.0
_STAMP_BYTES = 8


@dataclass(kw_only=True, slots=True)
class Interval:
    """Latency of one interval in milliseconds; the shares say how far to trust it.

    `p99_ms` is that of the worst ten seconds in it.
    """

    seconds: float = 0.0
    sent: int = 0
    received: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    worst_ms: float = 0.0
    wait_share: float = 0.0  # of the time, this process was ready to run and had no processor
    steal_share: float = 0.0


class Pair:
    """The process, seen from the one that started it."""

    def __init__(self, port: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.soak.pair", str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        self._answer()  # both ends are connected
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def mark(self) -> Interval:
        """End an interval and begin the next; gives the one that ended."""
        assert self._process.stdin is not None
        self._process.stdin.write("mark\n")
        self._process.stdin.flush()
        return Interval(**self._answer())

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], ANSWER_SECONDS)[0]:
            raise TimeoutError("the pair does not answer")
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the pair lost its connection to the broker")
        answer: dict[str, Any] = json.loads(line)
        return answer


class _Ends:
    """The two connections, inside the process."""

    def __init__(self, port: int) -> None:
        self._subscriber = _open(port, "pair-subscriber")
        self._subscriber.sendall(packets.subscribe(1, TOPIC, qos=0, protocol=4))
        _receive_exactly(self._subscriber, 5)
        self._publisher = _open(port, "pair-publisher")
        self._subscriber.setblocking(False)
        self._packet_bytes = len(packets.publish(TOPIC, bytes(_STAMP_BYTES), qos=0, protocol=4))
        self._carry = b""
        self.latencies_ns: list[int] = []
        self.sent = 0

    def send(self) -> None:
        stamp = time.monotonic_ns().to_bytes(_STAMP_BYTES, "big")
        self._publisher.sendall(packets.publish(TOPIC, stamp, qos=0, protocol=4))
        self.sent += 1

    def wait(self, seconds: float) -> bool:
        """Receive for at most so long; True once there is a command on standard input."""
        ready, _, _ = select.select([self._subscriber, sys.stdin], [], [], max(0.0, seconds))
        if self._subscriber in ready:
            data = self._subscriber.recv(65_536)
            now_ns = time.monotonic_ns()
            if not data:
                raise SystemExit("the broker closed the connection")
            data = self._carry + data
            size = self._packet_bytes
            whole = len(data) - len(data) % size
            for end in range(size, whole + 1, size):
                self.latencies_ns.append(now_ns - int.from_bytes(data[end - _STAMP_BYTES : end], "big"))
            self._carry = data[whole:]
        return sys.stdin in ready


def _open(port: int, client_id: str) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), 10)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(packets.connect(client_id, protocol=4))
    if _receive_exactly(sock, 4)[3]:
        raise SystemExit("the pair was refused")
    return sock


def _receive_exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise SystemExit("the broker closed the connection")
        data += more
    return data


def worst_p99(latencies: list[int]) -> float:
    """The highest 99th percentile of any WINDOW neighbours, in steps of a tenth of it."""
    starts = range(0, max(1, len(latencies) - WINDOW + 1), WINDOW // 10)
    return max(percentile(sorted(latencies[start : start + WINDOW]) or [0], 0.99) for start in starts)


def main() -> None:
    ends = _Ends(int(sys.argv[1]))
    print("{}", flush=True)
    while True:
        began = time.monotonic()
        waited, steal = waited_seconds(os.getpid()), steal_seconds()
        ends.latencies_ns, ends.sent = [], 0
        command = False
        while not command:
            due = began + ends.sent / RATE
            while not command and (left := due - time.monotonic()) > 0:
                command = ends.wait(left)
            if not command:
                ends.send()
                command = ends.wait(0)
        line = sys.stdin.readline()
        seconds = time.monotonic() - began
        last = time.monotonic() + LAST_SECONDS
        while len(ends.latencies_ns) < ends.sent and time.monotonic() < last:
            ends.wait(0.05)
        ordered = sorted(ends.latencies_ns) or [0]
        answer = {
            "seconds": seconds,
            "sent": ends.sent,
            "received": len(ends.latencies_ns),
            "p50_ms": percentile(ordered, 0.50) / 1e6,
            "p99_ms": worst_p99(ends.latencies_ns) / 1e6,
            "worst_ms": ordered[-1] / 1e6,
            "wait_share": (waited_seconds(os.getpid()) - waited) / seconds,
            "steal_share": (steal_seconds() - steal) / seconds,
        }
        print(json.dumps(answer), flush=True)
        if not line:
            return


if __name__ == "__main__":
    main()
