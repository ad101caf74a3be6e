"""The ways into a node: plain TCP, TLS, WebSocket, both, a unix socket, behind a proxy."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PATIENCE = 5.0  # seconds for each step of the way in
UPGRADE = (
    b"GET /mqtt HTTP/1.1\r\nHost: node\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
)
BINARY, PING_FRAME = 0x82, 0x89
PROXY = b"\r\n\r\n\0\r\nQUIT\n\x21\x11"  # version 2, a TCP connection over IPv4


def frame(payload: bytes, kind: int = BINARY) -> bytes:
    """A whole frame as a client sends it, masked with zeros."""
    size = len(payload)
    if size < 126:
        head = struct.pack("!BB", kind, 0x80 | size)
    elif size < 65_536:
        head = struct.pack("!BBH", kind, 0xFE, size)
    else:
        head = struct.pack("!BBQ", kind, 0xFF, size)
    return head + b"\0\0\0\0" + payload


def proxy_header(address: str, port: int) -> bytes:
    """That a proxy sends first: whom the connection comes from."""
    body = socket.inet_aton(address) + b"\x7f\0\0\1" + struct.pack("!HH", port, 1883)
    return PROXY + struct.pack("!H", len(body)) + body


@dataclass(frozen=True, kw_only=True)
class Way:
    """Where a listener is, and what is around the bytes of MQTT."""

    name: str
    port: int = 0
    path: Path | None = None
    is_tls: bool = False
    is_websocket: bool = False
    is_proxied: bool = False

    def dial(self, number: int = 0) -> socket.socket:
        """A connection of which nothing is sent yet but what is around; `number` makes the address behind a proxy."""
        if self.path is not None:
            sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(PATIENCE)
            sock.connect(str(self.path))
        else:
            sock = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        if self.is_proxied:
            sock.sendall(proxy_header(f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}", 40_000))
        if self.is_tls:
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            sock = context.wrap_socket(sock, server_hostname="node")
        if self.is_websocket:
            sock.sendall(UPGRADE)
            answer = b""
            while b"\r\n\r\n" not in answer:
                part = sock.recv(4_096)
                if not part:
                    raise ConnectionResetError("the upgrade was refused")
                answer += part
        return sock

    @property
    def wrap(self) -> Callable[[bytes], bytes]:
        """What the bytes of MQTT are sent as."""
        return frame if self.is_websocket else bytes


def discard(sock: socket.socket) -> bool:
    """Read what is there and forget it; False if the other side is gone."""
    try:
        while True:
            data = sock.recv(65_536)
            if not data:
                return False
            if not isinstance(sock, ssl.SSLSocket) and len(data) < 65_536:
                return True
    except (BlockingIOError, ssl.SSLWantReadError, TimeoutError):
        return True
    except OSError:
        return False
