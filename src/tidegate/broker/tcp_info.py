"""What Linux knows of a TCP connection: struct tcp_info, of which a few fields at fixed places."""

from __future__ import annotations

import asyncio
import socket
from struct import Struct
from typing import NamedTuple

_FIELDS = Struct("=120xQQ8xI28xQ")
"""bytes_acked, bytes_received, notsent_bytes, rwnd_limited"""


class TcpInfo(NamedTuple):
    """Totals of one connection; `unsent` is of the moment."""

    acked: int  # bytes that the other end has
    received: int
    unsent: int  # bytes that wait in the kernel
    held: float  # seconds in which the other end had no room


def tcp_info(transport: asyncio.Transport) -> TcpInfo | None:
    """None for a socket that is gone, or no TCP, or elsewhere than on Linux."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    try:
        found = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _FIELDS.size)
    except (OSError, ValueError, AttributeError):
        return None
    if len(found) < _FIELDS.size:
        return None
    acked, received, unsent, held = _FIELDS.unpack(found)
    return TcpInfo(acked, received, unsent, held / 1e6)
