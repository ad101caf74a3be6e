"""Listeners: TCP, TLS, WebSocket over either, and Unix-domain sockets.

`listen` opens one listener and hands every connection to a protocol made by the factory. For TCP, TLS and
Unix sockets that protocol sits directly on the event loop's transport; for WebSocket an adaptor stands in
between. Both event loops set TCP_NODELAY on what they accept. Limits on connections are the caller's, who gives a
`Doorway` for those that are not even clients yet: of listeners with the same one they are bounded together.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl as ssl_module
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tidegate.net.addresses import DEFAULT_WEBSOCKET_PATH, Endpoint, join_host_port, scheme_of
from tidegate.net.doorway import Doorway
from tidegate.net.errors import AddressInUse, ListenError
from tidegate.net.handshakes import HandshakeLog, TLSGate
from tidegate.net.proxy import ProxyGate, ProxyOptions
from tidegate.net.unix import bind_unix, unlink_own
from tidegate.net.websocket import Upgrades, WebSocketOptions, WebSocketServer

ProtocolFactory = Callable[[], asyncio.Protocol]

# Enough for the reconnect storm of a restarted node; the kernel caps it at net.core.somaxconn.
DEFAULT_BACKLOG = 4096

# A TLS handshake takes two round trips; whoever needs longer than this holds a socket for nothing.
DEFAULT_TLS_HANDSHAKE_TIMEOUT = 10.0

# Owner and group: who may connect is decided by the group of the socket file.
DEFAULT_UNIX_MODE = 0o660


@dataclass(slots=True, kw_only=True)
class ListenStatistics:
    """Counts since the listener was opened; `upgrading` and the `waiting` ones are numbers of the moment.

    `tls_failed` are handshakes that did not succeed, `tls_waiting` those under way without a proxy.
    `proxied` connections brought a PROXY header, `proxy_refused` a wrong one or none.
    """

    accepted: int = 0
    upgrading: int = 0
    upgraded: int = 0
    upgrades_failed: int = 0
    proxy_waiting: int = 0
    proxied: int = 0
    proxy_refused: int = 0
    tls_waiting: int = 0
    tls_failed: int = 0


class Listening:
    """An open listener. `close` stops accepting; connections already accepted belong to the caller."""

    __slots__ = ("_accepting", "_inode", "_server", "_unix_path", "endpoints")

    def __init__(
        self,
        server: asyncio.AbstractServer,
        endpoints: tuple[Endpoint, ...],
        accepting: _Accepting,
        unix_path: Path | None = None,
        inode: int = 0,
    ) -> None:
        self.endpoints = endpoints
        self._server = server
        self._accepting = accepting
        self._unix_path = unix_path
        self._inode = inode

    @property
    def port(self) -> int:
        """The first bound port, with port 0 resolved; 0 for a Unix socket."""
        return self.endpoints[0].port

    def statistics(self) -> ListenStatistics:
        return self._accepting.statistics()

    def close(self) -> None:
        """Stop accepting at once and remove the socket file; may be called twice.

        Connections that still wait for their PROXY header, TLS handshake or WebSocket upgrade are cut off.
        """
        self._server.close()
        if self._accepting.tls is not None:
            self._accepting.tls.abort_waiting()
        if self._accepting.gate is not None:
            self._accepting.gate.abort_waiting()
        self._accepting.upgrades.abort_pending()
        if self._unix_path is not None:
            unlink_own(self._unix_path, self._inode)
            self._unix_path = None

    async def wait_closed(self) -> None:
        """Wait until the event loop has let go of the listening sockets; call `close` first."""
        await self._server.wait_closed()


async def listen(
    protocol_factory: ProtocolFactory,
    *,
    host: str | None = None,
    port: int = 0,
    unix_path: str | Path | None = None,
    ssl: ssl_module.SSLContext | None = None,
    websocket: WebSocketOptions | None = None,
    proxy: ProxyOptions | None = None,
    backlog: int = DEFAULT_BACKLOG,
    reuse_port: bool = False,
    unix_mode: int = DEFAULT_UNIX_MODE,
    tls_handshake_timeout: float = DEFAULT_TLS_HANDSHAKE_TIMEOUT,
    door: Doorway | None = None,
) -> Listening:
    """Open one listener, on `host` and `port` or on `unix_path`.

    `host` None binds every interface; port 0 lets the system choose (see `Listening.endpoints`). With `ssl`
    connections are TLS, with `websocket` they are upgraded first; the two combine. With `proxy` every connection
    must begin with a PROXY header, before TLS, and `get_extra_info("peername")` is the client's address in it.
    A connection has its place in `door` until the caller's protocol, which takes it over, leaves it.
    Raises `AddressInUse` or `ListenError`.
    """
    loop = asyncio.get_running_loop()
    tls = ssl is not None
    handshake_timeout = tls_handshake_timeout if tls else None
    accepting = _Accepting(protocol_factory, websocket, Doorway() if door is None else door)
    if proxy is not None:
        accepting.put_gate(proxy, ssl, handshake_timeout)  # TLS begins behind the header
    elif ssl is not None:
        accepting.put_tls(ssl, handshake_timeout)
    server: asyncio.AbstractServer
    if unix_path is not None:
        path = Path(unix_path)
        bound, inode = bind_unix(path, mode=unix_mode)
        try:
            server = await loop.create_unix_server(accepting, sock=bound, backlog=backlog)
        except BaseException:
            bound.close()
            unlink_own(path, inode)
            raise
        return Listening(server, (Endpoint(scheme="unix", path=str(path)),), accepting, path, inode)
    try:
        server = await loop.create_server(
            accepting,
            host,
            port,
            backlog=backlog,
            reuse_address=True,
            reuse_port=reuse_port,
        )
    except OSError as error:
        raise _listen_error(host, port, error) from error
    endpoints = tuple(
        Endpoint(
            scheme=scheme_of(tls=tls, websocket=websocket is not None),
            host=name[0],
            port=name[1],
            path=_advertised_path(websocket),
            tls=tls,
            websocket=websocket is not None,
        )
        for name in (bound.getsockname() for bound in server.sockets)
    )
    return Listening(server, endpoints, accepting)


class _Accepting:
    """The factory given to the event loop: counts, and puts what is wanted in front of the caller's protocol."""

    __slots__ = ("_door", "_factory", "accepted", "gate", "handshakes", "tls", "upgrades")

    def __init__(self, factory: ProtocolFactory, options: WebSocketOptions | None, door: Doorway) -> None:
        self._door = door
        self.accepted = 0
        self.upgrades = Upgrades()
        self.handshakes = HandshakeLog()
        self.gate: ProxyGate | None = None
        self.tls: TLSGate | None = None
        self._factory: ProtocolFactory = factory
        if options is not None:
            self._factory = partial(WebSocketServer, factory, options, self.upgrades, door)

    def put_gate(
        self, options: ProxyOptions, ssl: ssl_module.SSLContext | None, handshake_timeout: float | None
    ) -> None:
        self.gate = ProxyGate(
            self._factory,
            options,
            ssl=ssl,
            tls_handshake_timeout=handshake_timeout,
            handshakes=self.handshakes,
            door=self._door,
        )
        self._factory = self.gate

    def put_tls(self, ssl: ssl_module.SSLContext, handshake_timeout: float | None) -> None:
        self.tls = TLSGate(self._factory, ssl, handshake_timeout, self.handshakes, self._door)
        self._factory = self.tls

    def __call__(self) -> asyncio.Protocol:
        self.accepted += 1
        return self._factory()

    def statistics(self) -> ListenStatistics:
        gate = self.gate
        return ListenStatistics(
            proxy_waiting=len(gate.waiting) if gate is not None else 0,
            proxied=gate.introduced if gate is not None else 0,
            proxy_refused=gate.refused if gate is not None else 0,
            tls_waiting=len(self.tls.waiting) if self.tls is not None else 0,
            tls_failed=self.handshakes.failed,
            accepted=self.accepted,
            upgrading=len(self.upgrades.pending),
            upgraded=self.upgrades.done,
            upgrades_failed=self.upgrades.failed,
        )


def _advertised_path(options: WebSocketOptions | None) -> str:
    """The path to tell people: the usual one if it is accepted."""
    if options is None:
        return ""
    if not options.paths or DEFAULT_WEBSOCKET_PATH in options.paths:
        return DEFAULT_WEBSOCKET_PATH
    return options.paths[0]


def _listen_error(host: str | None, port: int, error: OSError) -> ListenError:
    address = join_host_port(host or "*", port)
    if error.errno == errno.EADDRINUSE:
        return AddressInUse(
            address,
            "the address is in use",
            hint="stop the other process (`ss -ltnp` names it) or choose another port",
        )
    if isinstance(error, socket.gaierror):
        problem = f"the host name does not resolve ({error.strerror})"
        return ListenError(address, problem, hint="use an address of this machine")
    reason = error.strerror or str(error)
    if error.errno in (errno.EACCES, errno.EPERM):
        return ListenError(
            address, reason, hint="ports below 1024 need CAP_NET_BIND_SERVICE; choose a higher port"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return ListenError(address, reason, hint="use an address of this machine; `ip addr` lists them")
    return ListenError(address, reason, hint="choose another address")
