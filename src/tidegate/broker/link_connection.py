"""A connection to another node counts what comes by it; connections of clients do not pay for that."""

from __future__ import annotations

import socket
import sys
from typing import Any

from tidegate.broker.connection import Connection

TCP_INFO_BYTES = 192  # of Linux's struct tcp_info, of which
ACKED_AT, RECEIVED_AT = 120, 128  # the bytes that the other end has, and that came from it, stand here


class LinkConnection(Connection):
    """`received` are its PUBLISH packets."""

    __slots__ = ("received",)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.received = 0

    def _consume(self, data: bytes) -> bytes:
        counters = self.core.counters
        before = counters.publish_received
        left = super()._consume(data)
        self.received += counters.publish_received - before
        return left

    def traffic(self) -> tuple[int, int]:
        """Bytes that came and that the other end has, as TCP counts them; zeros where it does not."""
        sock = self.transport.get_extra_info("socket")
        if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
            return 0, 0
        try:
            info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
        except (OSError, ValueError, AttributeError):  # the socket is gone, or no Linux
            return 0, 0
        received, acked = (
            int.from_bytes(info[at : at + 8], sys.byteorder) for at in (RECEIVED_AT, ACKED_AT)
        )
        return received, acked
