"""Listeners behind a proxy: the PROXY header first, then the connection as if the client had made it.

Theory of operation. A listener with `ProxyOptions` accepts nothing but connections that begin with a header, from
proxies it trusts: were the header optional, any client could choose its own address. Until the header is there a
connection is only a reader with a deadline; then the inner protocol is made, becomes the transport's protocol
itself, and nothing of this module stays between socket and protocol but `ProxiedTransport`, whose `write` is the
real transport's bound method.

TLS behind the header cannot be begun on a transport, which may have read the ClientHello along with the header and
cannot take it back. So the socket is taken from the transport before it reads, the header is read from it to the
byte, and the event loop gets the socket again as a TLS connection.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import ssl as ssl_module
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from tidegate.net.doorway import Doorway
from tidegate.net.handshakes import HandshakeLog, TakenSocket, take_socket, wait_hello
from tidegate.net.proxy_header import HeaderReader, ProxyHeader, ProxyHeaderError

log = logging.getLogger("tidegate.net.proxy")

Data = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyOptions:
    """How a listener reads PROXY headers. Times in seconds.

    `trusted` are addresses and networks of the proxies; empty trusts whoever can connect, but then the name of a
    client certificate is not believed. On a Unix socket the file's mode decides who may connect, and such a peer is
    trusted.
    """

    trusted: tuple[str, ...] = ()
    header_timeout: float = 10.0


class ProxyGate:
    """One listener's connections that wait for their header, and what became of the others.

    It is the protocol factory for the event loop; `factory` makes the protocols behind the header. With `ssl`, TLS
    begins behind the header. Raises ValueError if `trusted` holds what is neither address nor network.
    """

    def __init__(
        self,
        factory: Callable[[], asyncio.Protocol],
        options: ProxyOptions,
        *,
        ssl: ssl_module.SSLContext | None = None,
        tls_handshake_timeout: float | None = None,
        handshakes: HandshakeLog | None = None,
        door: Doorway | None = None,
    ) -> None:
        self.options = options
        self.door = Doorway() if door is None else door
        self.handshakes = handshakes or HandshakeLog()
        self.ssl = ssl
        self.tls_handshake_timeout = tls_handshake_timeout
        self.waiting: set[_Introduction | _TLSIntroduction] = set()
        self.introduced = 0
        self.refused = 0
        self._factory = factory
        self._networks = [ipaddress.ip_network(network) for network in options.trusted]

    def __call__(self) -> asyncio.Protocol:
        return _Introduction(self) if self.ssl is None else _TLSIntroduction(self)

    def admits(self, transport: asyncio.BaseTransport) -> bool:
        """Whether to wait for a header of this peer; a refusal is counted here."""
        peer = transport.get_extra_info("peername")
        if self._trusts(peer):
            return True
        self.refuse(peer, "the peer is not a trusted proxy")
        return False

    def _trusts(self, peer: object) -> bool:
        if peer is None:
            return False  # it is gone already, and with it its address
        if not self._networks or not isinstance(peer, tuple):
            return True
        address = ipaddress.ip_address(peer[0])
        # A socket for both families shows IPv4 peers as ::ffff:a.b.c.d.
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in self._networks)

    def refuse(self, peer: object, reason: str) -> None:
        self.refused += 1
        # A proxy that was not told to send headers shows at the first connection; a scanner must not fill the log.
        level = logging.WARNING if self.refused == 1 else logging.DEBUG
        log.log(level, "connection refused by a PROXY listener", extra={"peer": str(peer), "reason": reason})

    def introduce(self, transport: asyncio.Transport, header: ProxyHeader) -> asyncio.Protocol:
        """Make the inner protocol and let it have the transport."""
        self.introduced += 1
        proxy = transport.get_extra_info("peername")
        facts: dict[str, Any] = {"proxy_peername": proxy, "proxy_header": header}
        if header.source is not None:
            facts["peername"] = header.source
        if self.ssl is None and header.certificate_name and (self._networks or not isinstance(proxy, tuple)):
            facts["peercert"] = {"subject": ((("commonName", header.certificate_name),),)}
        inner = self._factory()
        transport.set_protocol(inner)
        inner.connection_made(ProxiedTransport(transport, facts))
        return inner

    def abort_waiting(self) -> None:
        for introduction in tuple(self.waiting):
            introduction.abort()


class ProxiedTransport(asyncio.Transport):
    """The real transport, but for what the header says of the peer."""

    # `write` is a slot that holds the real transport's method: no Python frame for what is called all the time. The
    # call costs 30 ns more than on uvloop's transport itself, which does not show in the echo of one small packet.
    __slots__ = ("_transport", "write")

    write: Callable[[Data], None]  # type: ignore[assignment]

    def __init__(self, transport: asyncio.Transport, facts: dict[str, Any]) -> None:
        super().__init__(facts)
        self._transport = transport
        self.write = transport.write

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        facts: dict[str, Any] = self._extra  # type: ignore[attr-defined]
        if name in facts:
            return facts[name]
        return self._transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._transport.set_protocol(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._transport.get_protocol()

    def is_reading(self) -> bool:
        return self._transport.is_reading()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def writelines(self, list_of_data: Iterable[Data]) -> None:
        self._transport.writelines(list_of_data)

    def write_eof(self) -> None:
        self._transport.write_eof()

    def can_write_eof(self) -> bool:
        return self._transport.can_write_eof()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._transport.get_write_buffer_limits()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()


class _Introduction(asyncio.Protocol):
    """A connection in the clear, until its header is complete."""

    __slots__ = ("_deadline", "_gate", "_reader", "_transport")

    _transport: asyncio.Transport
    _deadline: asyncio.TimerHandle

    def __init__(self, gate: ProxyGate) -> None:
        self._gate = gate
        self._reader = HeaderReader()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if not self._gate.admits(transport):
            self._transport.abort()
            return
        self._gate.waiting.add(self)
        self._gate.door.enter(self, transport)
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(self._gate.options.header_timeout, self._refuse, "no header in time")

    def data_received(self, data: bytes) -> None:
        if self not in self._gate.waiting:
            return
        try:
            header = self._reader.feed(data)
        except ProxyHeaderError as error:
            self._refuse(error.problem)
            return
        if header is None:
            return
        self._leave_waiting()
        inner = self._gate.introduce(self._transport, header)
        self._gate.door.leave(self)
        if self._reader.rest and not self._transport.is_closing():
            inner.data_received(self._reader.rest)

    def connection_lost(self, exc: Exception | None) -> None:
        if self not in self._gate.waiting:
            return
        self._leave()
        if self._reader.has_begun:  # one that only looked whether the port is open did nothing wrong
            self._gate.refuse(self._transport.get_extra_info("peername"), "closed inside the header")

    def abort(self) -> None:
        self._leave()
        self._transport.abort()

    def _refuse(self, reason: str) -> None:
        self._gate.refuse(self._transport.get_extra_info("peername"), reason)
        self.abort()

    def _leave(self) -> None:
        self._leave_waiting()
        self._gate.door.leave(self)

    def _leave_waiting(self) -> None:
        self._gate.waiting.discard(self)
        self._deadline.cancel()


class _TLSIntroduction(TakenSocket):
    """A connection with TLS behind its header, until both are done."""

    __slots__ = ("_gate", "_peer")

    def __init__(self, gate: ProxyGate) -> None:
        super().__init__(gate)
        self._gate = gate
        self._peer: object = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        gate = self._gate
        try:
            if not gate.admits(transport):
                return
            self._peer = transport.get_extra_info("peername")
            try:
                taken = take_socket(cast(asyncio.Transport, transport))
            except OSError as error:  # no descriptor is left
                gate.refuse(self._peer, str(error))
                return
        finally:
            cast(asyncio.Transport, transport).abort()
        self._work(taken, transport, self._introduce)

    async def _introduce(self, taken: socket.socket) -> None:
        gate = self._gate
        peer = self._peer
        try:
            header = await self._read_header(taken)
            peer = header.source or peer
            # Proxies check their servers with a header and nothing behind it.
            if not await wait_hello(taken, gate.tls_handshake_timeout):
                return
            await asyncio.get_running_loop().connect_accepted_socket(
                partial(_Introduced, gate, header),
                taken,
                ssl=gate.ssl,
                ssl_handshake_timeout=gate.tls_handshake_timeout,
            )
        except ProxyHeaderError as error:
            gate.refuse(self._peer, error.problem)
        except _ClosedEarly:
            pass
        except OSError as error:  # of the socket or of TLS, as on any TLS listener
            gate.handshakes.add(peer, error)

    async def _read_header(self, taken: socket.socket) -> ProxyHeader:
        loop = asyncio.get_running_loop()
        reader = HeaderReader()
        try:
            async with asyncio.timeout(self._gate.options.header_timeout):
                while data := await loop.sock_recv(taken, reader.wants):
                    if header := reader.feed(data):
                        return header
        except TimeoutError:
            taken.close()
            raise ProxyHeaderError("no header in time") from None
        except ConnectionError:
            pass  # reset by the peer is closed by the peer
        except BaseException:
            taken.close()
            raise
        taken.close()
        if reader.has_begun:
            raise ProxyHeaderError("closed inside the header")
        raise _ClosedEarly


class _ClosedEarly(Exception):
    """The peer left before it sent anything: it only looked whether the port is open."""


class _Introduced(asyncio.Protocol):
    """Stands in until the TLS handshake is done, which is when a protocol gets its `connection_made`."""

    __slots__ = ("_gate", "_header")

    def __init__(self, gate: ProxyGate, header: ProxyHeader) -> None:
        self._gate = gate
        self._header = header

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._gate.introduce(cast(asyncio.Transport, transport), self._header)
