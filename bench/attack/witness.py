"""The client that notices what others do to a node: it pings as fast as it is answered, in a process of its own.

`python -m bench.attack.witness PORT USER` runs until its input ends, then prints all pings.
"""

from __future__ import annotations

import json
import select
import socket
import subprocess
import sys
import time
from types import TracebackType
from typing import Self

from tidegate.load import packets

PING, ANSWER = b"\xc0\x00", b"\xd0\x00"
PAUSE = 0.01  # seconds between a PINGRESP and the next PINGREQ
SILENT = 60.0  # seconds that stand for a ping that was never answered
PATIENCE = 10.0


class Witness:
    """`pings` are (when on the monotonic clock, seconds), in order; they are there when it has ended."""

    def __init__(self, port: int, user: str = "") -> None:
        """A user has its name as password."""
        self.pings: list[tuple[float, float]] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.attack.witness", str(port), user],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()  # it is connected

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    @property
    def worst(self) -> float:
        return max(seconds for _, seconds in self.pings)

    def end(self) -> None:
        if self._process.poll() is None:
            said, _ = self._process.communicate("", timeout=PATIENCE + SILENT)
            self.pings = [(when, seconds) for when, seconds in json.loads(said)]


def main() -> None:
    pings: list[tuple[float, float]] = []
    with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=PATIENCE) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        user = sys.argv[2] or None
        client.sendall(packets.connect("witness", protocol=4, username=user, password=user))
        assert client.recv(4) == b"\x20\x02\x00\x00"
        print("connected", flush=True)
        while not select.select([sys.stdin], [], [], PAUSE)[0]:
            began = time.monotonic()
            try:
                client.sendall(PING)
                is_answered = client.recv(2) == ANSWER
            except OSError:
                is_answered = False
            pings.append((began, time.monotonic() - began if is_answered else SILENT))
            if not is_answered:
                break
    print(json.dumps(pings))


if __name__ == "__main__":
    main()
