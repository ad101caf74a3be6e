"""Thousands of clients that come back at the same moment, in a process of their own.

`python -m bench.soak.storm PORT COUNT` takes commands on standard input: `connect` opens every client that is not
connected, all at once, and answers with a line of JSON when the last one is in (CONNACK and SUBACK received) or the
deadline has passed; `wait` answers when the broker has dropped all of them; `drop` closes all sockets without a
word. A client that is turned away (the port is closed, the connection reset, CONNACK says no) waits for a short
random time, twice as long each time, and tries again, as a device would.
"""

from __future__ import annotations

import errno
import heapq
import json
import random
import select
import socket
import subprocess
import sys
import time
from collections import Counter
from types import TracebackType
from typing import Any, Self

from tidegate.load import packets

DEADLINE = 120.0
FIRST_BACKOFF, LONGEST_BACKOFF = 0.2, 3.0
CLIENTS_PER_SOURCE = 4_000  # ports per source address are about 28 000, and closed ones rest for a minute
_CONNACK_BYTES, _ANSWERS_BYTES = 4, 9  # CONNACK, and SUBACK behind it


class Storm:
    """The process, seen from the one that started it."""

    def __init__(self, port: int, count: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.soak.storm", str(port), str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def tell(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """What came of the last command."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], DEADLINE + 30)[0]:
            raise TimeoutError("the storm does not answer")
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the storm ended with status {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


class _Device:
    """One client: a socket, what it has received of its two answers, and how long it waits next time."""

    __slots__ = ("answers", "backoff", "index", "is_up", "sock")

    def __init__(self, index: int) -> None:
        self.index = index
        self.sock: socket.socket | None = None
        self.answers = b""
        self.backoff = FIRST_BACKOFF
        self.is_up = False


class _Devices:
    def __init__(self, port: int, count: int) -> None:
        self._address = ("127.0.0.1", port)
        self._epoll = select.epoll()
        self._by_fd: dict[int, _Device] = {}
        self._devices = [_Device(index) for index in range(count)]
        self._random = random.Random(count)
        self._due: list[tuple[float, int]] = []
        self._turned_away: Counter[str] = Counter()
        self._attempts = 0

    @property
    def up(self) -> int:
        return sum(device.is_up for device in self._devices)

    def drop(self) -> dict[str, Any]:
        for device in self._devices:
            self._close(device)
        return {"up": self.up}

    def wait_dropped(self) -> dict[str, Any]:
        """The broker closes; nobody comes back until told."""
        began = time.monotonic()
        while (up := self.up) and time.monotonic() < began + DEADLINE:
            for fd, _ in self._epoll.poll(0.1):
                self._close(self._by_fd[fd])
        return {"up": up, "seconds": time.monotonic() - began}

    def connect(self) -> dict[str, Any]:
        self._turned_away.clear()
        self._attempts = 0
        began = now = time.monotonic()
        self._due = [(began, device.index) for device in self._devices if not device.is_up]
        for device in self._devices:
            device.backoff = FIRST_BACKOFF
        missing = len(self._due)
        seconds: list[float] = []
        while len(seconds) < missing and now < began + DEADLINE:
            started = 0
            # A slice at a time, so that answers are seen while the rest begins.
            while self._due and self._due[0][0] <= now and started < 200:
                self._start(self._devices[heapq.heappop(self._due)[1]])
                started += 1
            for fd, events in self._epoll.poll(0 if started else 0.01, 1_000):
                if self._on_event(self._by_fd[fd], events):
                    seconds.append(time.monotonic() - began)
            now = time.monotonic()
        seconds.sort()
        return {
            "up": self.up,
            "seconds": seconds[-1] if seconds else 0.0,
            "half_seconds": seconds[len(seconds) // 2] if seconds else 0.0,
            "attempts": self._attempts,
            "turned_away": dict(self._turned_away),
        }

    def _start(self, device: _Device) -> None:
        self._attempts += 1
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setblocking(False)
        sock.bind((f"127.0.0.{2 + device.index // CLIENTS_PER_SOURCE}", 0))
        device.sock, device.answers = sock, b""
        self._by_fd[sock.fileno()] = device
        code = sock.connect_ex(self._address)
        self._epoll.register(sock.fileno(), select.EPOLLIN | select.EPOLLOUT)
        if code not in (0, errno.EINPROGRESS):
            self._again(device, errno.errorcode.get(code, str(code)))

    def _on_event(self, device: _Device, events: int) -> bool:
        """True when the device has come in."""
        sock = device.sock
        assert sock is not None
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._again(device, errno.errorcode.get(code, str(code)))
            return False
        if events & select.EPOLLOUT:
            # CONNECT and SUBSCRIBE in one: a client need not wait for CONNACK [MQTT5-3.1.4-6].
            sock.send(
                packets.connect(f"device-{device.index}", protocol=4, keep_alive=600)
                + packets.subscribe(1, f"soak/device/{device.index}", qos=0, protocol=4)
            )
            self._epoll.modify(sock.fileno(), select.EPOLLIN)
            return False
        try:
            data = sock.recv(64)
        except OSError as error:
            self._again(device, errno.errorcode.get(error.errno or 0, "error"))
            return False
        device.answers += data
        if not data:
            self._again(device, "closed")
        elif len(device.answers) >= _CONNACK_BYTES and device.answers[3]:
            self._again(device, f"CONNACK {device.answers[3]}")
        elif len(device.answers) == _ANSWERS_BYTES and not device.is_up:
            device.is_up = True
            return True
        return False

    def _again(self, device: _Device, why: str) -> None:
        self._turned_away[why] += 1
        self._close(device)
        heapq.heappush(
            self._due, (time.monotonic() + device.backoff * self._random.uniform(0.5, 1.5), device.index)
        )
        device.backoff = min(device.backoff * 2, LONGEST_BACKOFF)

    def _close(self, device: _Device) -> None:
        device.is_up = False
        if device.sock is not None:
            del self._by_fd[device.sock.fileno()]
            device.sock.close()
            device.sock = None


def main() -> None:
    devices = _Devices(int(sys.argv[1]), int(sys.argv[2]))
    commands = {"connect": devices.connect, "drop": devices.drop, "wait": devices.wait_dropped}
    for line in sys.stdin:
        print(json.dumps(commands[line.strip()]()), flush=True)


if __name__ == "__main__":
    main()
