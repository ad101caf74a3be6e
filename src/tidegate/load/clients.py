"""Raw non-blocking MQTT clients on one epoll set, and how thousands of them are opened.

A `Client` owns a socket and the stream that understands what arrives on it. Bytes the kernel does not take
at once wait in `pending` and are sent as soon as it has room; a publisher with something pending is not
asked for more, so what waits here is bounded by one burst and the acknowledgements of the packets in flight.
"""

from __future__ import annotations

import errno
import math
import select
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from tidegate.load import packets
from tidegate.load.errors import ConnectionLost, ConnectionRefused, LoadError
from tidegate.load.packets import decode_length
from tidegate.load.streams import packet_bounds

# More than any burst: a chunk holds what a broker wrote in one turn. 128 KiB and more made no difference.
CHUNK_BYTES = 128 * 1024
# Clients that may be on their way in at once: under the listen backlog of every common broker (Mosquitto:
# 100).
_OPENING_AT_ONCE = 64
# Ephemeral ports are about 28 000 per address, and those of earlier runs may still be waiting to be free.
_CLIENTS_PER_SOURCE = 5000


class Stream(Protocol):
    """What a client feeds."""

    def feed(self, data: bytes, now_ns: int) -> bytes: ...


@dataclass(kw_only=True, slots=True, frozen=True)
class Access:
    """Where the broker is and how to get in."""

    host: str
    port: int
    protocol: int = 4
    username: str | None = None
    password: str | None = None
    keep_alive: int = 0
    connect_rate: float = 0.0


class Client:
    """One connection; `receive_maximum` is what the broker's CONNACK allows (65535 if it says nothing)."""

    __slots__ = (
        "_epoll",
        "_greeting",
        "client_id",
        "fd",
        "is_open",
        "pending",
        "persistent",
        "qos",
        "receive_maximum",
        "sock",
        "stream",
        "topic_filter",
    )

    def __init__(
        self,
        client_id: str,
        stream: Stream,
        *,
        topic_filter: str | None = None,
        qos: int = 0,
        persistent: bool = False,
    ) -> None:
        self.client_id = client_id
        self.stream = stream
        self.topic_filter = topic_filter
        self.persistent = persistent
        self.qos = qos
        self.receive_maximum = 65535
        self.pending = b""
        self.is_open = False
        self.fd = -1
        self.sock: socket.socket | None = None
        self._epoll: select.epoll | None = None
        self._greeting = b""

    def start(self, epoll: select.epoll, access: Access, family: int, address: object, source: str) -> None:
        """Begin to connect; `on_opening` takes it from there."""
        sock = socket.socket(family, socket.SOCK_STREAM)
        self.sock, self.fd, self._epoll = sock, sock.fileno(), epoll
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if source:
            sock.bind((source, 0))
        code = sock.connect_ex(address)  # type: ignore[arg-type]  # as getaddrinfo gave it
        if code not in (0, errno.EINPROGRESS):
            raise self._refused(f"cannot connect: {errno.errorcode.get(code, code)}", None)
        self.pending = packets.connect(
            self.client_id,
            protocol=access.protocol,
            keep_alive=access.keep_alive,
            username=access.username,
            password=access.password,
            persistent=self.persistent,
        )
        epoll.register(self.fd, select.EPOLLIN | select.EPOLLOUT)

    def on_opening(self, events: int, protocol: int) -> bool:
        """Handle an event before the client is in use; True once CONNACK (and SUBACK, if any) arrived."""
        assert self.sock is not None
        code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise self._refused(f"cannot connect: {errno.errorcode.get(code, code)}", None)
        if events & select.EPOLLOUT:
            self.flush()
        if not events & (select.EPOLLIN | select.EPOLLHUP):
            return False
        data = self.receive()
        if not data:
            raise self._refused("the broker closed the connection before it answered", None)
        self._greeting += data
        while bounds := packet_bounds(self._greeting, 0) if self._greeting else None:
            first_byte, body = self._greeting[0], self._greeting[bounds[0] : bounds[1]]
            self._greeting = self._greeting[bounds[1] :]
            if first_byte == 0x20:
                self._on_connack(body, protocol)
                if self.topic_filter is None:
                    return True
                self.write(packets.subscribe(1, self.topic_filter, qos=self.qos, protocol=protocol))
            elif first_byte == 0x90:
                if body[-1] >= 0x80:
                    raise self._refused(f"subscription to {self.topic_filter!r} refused", body[-1])
                return True
            else:
                raise self._refused(f"expected CONNACK or SUBACK, got packet type {first_byte >> 4}", None)
        return False

    def _on_connack(self, body: bytes, protocol: int) -> None:
        if body[1]:
            raise self._refused(f"connection refused with code 0x{body[1]:02x}", body[1])
        if protocol == 5:
            self.receive_maximum = _receive_maximum(body)

    def _refused(self, text: str, code: int | None) -> ConnectionRefused:
        return ConnectionRefused(self.client_id, text, code=code)

    def receive(self) -> bytes | None:
        """Return at most one chunk; b"" if the broker closed the connection, None if there is nothing."""
        assert self.sock is not None
        try:
            return self.sock.recv(CHUNK_BYTES)
        except BlockingIOError:
            return None
        except (ConnectionResetError, BrokenPipeError):
            return b""

    def on_event(self, events: int, now_ns: int) -> None:
        """Handle an event during the run: send what waits, feed what came, answer it."""
        if events & select.EPOLLOUT:
            self.flush()
        if events & ~select.EPOLLOUT:
            data = self.receive()
            if data:
                reply = self.stream.feed(data, now_ns)
                if reply:
                    self.write(reply)
            elif data is not None:
                self.close()
                raise ConnectionLost(self.client_id)

    def write(self, data: bytes | memoryview) -> None:
        """Send now what the kernel takes and keep the rest."""
        assert self._epoll is not None
        if self.pending:
            self.pending += bytes(data)
            return
        sent = self._send(data)
        if sent < len(data):
            self.pending = bytes(data[sent:])
            self._epoll.modify(self.fd, select.EPOLLIN | select.EPOLLOUT)

    def flush(self) -> None:
        """Send what waits; stop asking for room once all is gone."""
        assert self._epoll is not None
        if self.pending:
            self.pending = self.pending[self._send(self.pending) :]
        if not self.pending:
            self._epoll.modify(self.fd, select.EPOLLIN)

    def _send(self, data: bytes | memoryview) -> int:
        assert self.sock is not None
        try:
            return self.sock.send(data)
        except BlockingIOError:
            return 0
        except (ConnectionResetError, BrokenPipeError):
            # The end of the stream is reported by the read side, with what the broker sent last.
            return len(data)

    def close(self) -> None:
        """Say goodbye if there is room for it, and close."""
        if self.sock is None:
            return
        if not self.pending and self.is_open:
            self._send(packets.DISCONNECT_PACKET)
        if self._epoll is not None and not self._epoll.closed:
            try:
                self._epoll.unregister(self.fd)
            except OSError:
                pass  # never registered: the connection failed first
        self.sock.close()
        self.sock = None
        self.is_open = False


def _receive_maximum(body: bytes) -> int:
    """Return the Receive Maximum among the properties of an MQTT 5 CONNACK, 65535 if there is none."""
    length = decode_length(body, 2)
    if length is None:
        return 65535
    pos, end = length[1], length[1] + length[0]
    while pos < end:
        identifier = body[pos]
        pos += 1
        if identifier == 0x21:
            return int.from_bytes(body[pos : pos + 2], "big")
        # Sizes of the properties a CONNACK may hold [MQTT5-3.2.2.3]; the others are strings or binary.
        if identifier in (0x24, 0x25, 0x28, 0x29, 0x2A):
            pos += 1
        elif identifier in (0x13, 0x22):
            pos += 2
        elif identifier in (0x11, 0x27):
            pos += 4
        else:
            for _ in range(2 if identifier == 0x26 else 1):
                pos += 2 + int.from_bytes(body[pos : pos + 2], "big")
    return 65535


def open_clients(
    epoll: select.epoll,
    access: Access,
    clients: Iterable[Client],
    *,
    deadline: float = 30.0,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Connect and subscribe `clients`; raises ConnectionRefused, or LoadError after `deadline` s of silence.

    At most `access.connect_rate` begin in a second, if that is not 0. On a loopback address the clients
    come from several source addresses, so that ports do not run out.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(access.host, access.port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise LoadError(f"cannot resolve {access.host}: {error}", hint="give an address") from error
    spread = family == socket.AF_INET and str(address[0]).startswith("127.")
    waiting = iter(clients)
    opening: dict[int, Client] = {}
    started = opened = 0
    began = last = time.monotonic()
    is_all = False
    while True:
        allowed = math.inf
        if access.connect_rate:
            allowed = 1 + (time.monotonic() - began) * access.connect_rate
        while not is_all and len(opening) < _OPENING_AT_ONCE and started < allowed:
            client = next(waiting, None)
            if client is None:
                is_all = True
                break
            source = f"127.0.0.{1 + started // _CLIENTS_PER_SOURCE}" if spread else ""
            client.start(epoll, access, family, address, source)
            opening[client.fd] = client
            started += 1
        if not opening and is_all:
            return
        # Short while more may begin soon: the rate is kept in steps of a few milliseconds.
        for fd, events in epoll.poll(0.5 if is_all or started < allowed else 0.002):
            candidate = opening.get(fd)
            if candidate is None:
                continue  # an open client; whatever it got waits in the kernel
            if candidate.on_opening(events, access.protocol):
                candidate.is_open = True
                del opening[fd]
                opened += 1
                last = time.monotonic()
                if progress is not None and opened % 1000 == 0:
                    progress(opened)
        if time.monotonic() - last > deadline:
            raise LoadError(
                f"{len(opening)} clients got no answer within {deadline:g} s",
                hint="check that an MQTT broker listens on this port",
            )
