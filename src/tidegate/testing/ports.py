"""Ports for servers of tests and experiments."""

from __future__ import annotations

import socket
from random import SystemRandom

_FIRST, _LAST = 10_000, 32_000


def free_port() -> int:
    """A port of the loopback address that was free a moment ago.

    It is below those that Linux gives to connections that go out: one of these could have it before the server does.
    """
    random = SystemRandom()
    while True:
        port = random.randrange(_FIRST, _LAST)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
