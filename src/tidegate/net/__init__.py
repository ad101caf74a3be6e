"""Sockets for brokers and clients: listeners, dialers, TLS, WebSocket and an in-memory pair.

Nothing here knows a session or a subscription: bytes come in on one side, an `asyncio.Protocol` sits on the
other.
"""

from tidegate.net.addresses import Endpoint, parse_address
from tidegate.net.dial import dial
from tidegate.net.errors import (
    AddressError,
    AddressInUse,
    DialError,
    ListenError,
    NetError,
    TLSConfigError,
    WebSocketRefused,
)
from tidegate.net.listen import Listening, ListenStatistics, listen
from tidegate.net.memory import MemoryTransport, memory_pair
from tidegate.net.tls import client_context, server_context
from tidegate.net.websocket import WebSocketOptions
from tidegate.net.websocket_client import open_websocket

__all__ = [
    "AddressError",
    "AddressInUse",
    "DialError",
    "Endpoint",
    "ListenError",
    "ListenStatistics",
    "Listening",
    "MemoryTransport",
    "NetError",
    "TLSConfigError",
    "WebSocketOptions",
    "WebSocketRefused",
    "client_context",
    "dial",
    "listen",
    "memory_pair",
    "open_websocket",
    "parse_address",
    "server_context",
]
