"""Listeners: TCP, TLS, WebSocket over either, and Unix-domain sockets.

`listen` opens one listener and hands every connection to a protocol made by the factory. For TCP, TLS and
Unix sockets that protocol sits directly on the event loop's transport; for WebSocket an adaptor stands in
between. Both event loops set TCP_NODELAY on what they accept. Limits on connections are the caller's,
with one exception: connections that have not finished the WebSocket upgrade are unknown to the caller, so
they are bounded, counted and closed here.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl as ssl_module
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tidegate.net.addresses import DEFAULT_WEBSOCKET_PATH, Endpoint, join_host_port, scheme_of
from tidegate.net.errors import AddressInUse, ListenError
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
    """Counts since the listener was opened; `upgrading` is the number of upgrades under way now."""

    accepted: int = 0
    upgrading: int = 0
    upgraded: int = 0
    upgrades_failed: int = 0
    upgrades_turned_away: int = 0


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

        Connections still in the middle of a WebSocket upgrade are cut off.
        """
        self._server.close()
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
    backlog: int = DEFAULT_BACKLOG,
    reuse_port: bool = False,
    unix_mode: int = DEFAULT_UNIX_MODE,
    tls_handshake_timeout: float = DEFAULT_TLS_HANDSHAKE_TIMEOUT,
) -> Listening:
    """Open one listener, on `host` and `port` or on `unix_path`.

    `host` None binds every interface; port 0 lets the system choose (see `Listening.endpoints`). With `ssl`
    connections are TLS, with `websocket` they are upgraded first; the two combine.
    Raises `AddressInUse` or `ListenError`.
    """
    loop = asyncio.get_running_loop()
    accepting = _Accepting(protocol_factory, websocket)
    handshake_timeout = tls_handshake_timeout if ssl is not None else None
    server: asyncio.AbstractServer
    if unix_path is not None:
        path = Path(unix_path)
        bound, inode = bind_unix(path, mode=unix_mode)
        try:
            server = await loop.create_unix_server(
                accepting, sock=bound, ssl=ssl, backlog=backlog, ssl_handshake_timeout=handshake_timeout
            )
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
            ssl=ssl,
            backlog=backlog,
            reuse_address=True,
            reuse_port=reuse_port,
            ssl_handshake_timeout=handshake_timeout,
        )
    except OSError as error:
        raise _listen_error(host, port, error) from error
    tls = ssl is not None
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
    """The factory given to the event loop: counts, and puts the WebSocket adaptor in front if wanted."""

    __slots__ = ("_factory", "_options", "accepted", "upgrades")

    def __init__(self, factory: ProtocolFactory, options: WebSocketOptions | None) -> None:
        self._factory = factory
        self._options = options
        self.accepted = 0
        self.upgrades = Upgrades()

    def __call__(self) -> asyncio.Protocol:
        self.accepted += 1
        if self._options is None:
            return self._factory()
        return WebSocketServer(self._factory, self._options, self.upgrades)

    def statistics(self) -> ListenStatistics:
        return ListenStatistics(
            accepted=self.accepted,
            upgrading=len(self.upgrades.pending),
            upgraded=self.upgrades.done,
            upgrades_failed=self.upgrades.failed,
            upgrades_turned_away=self.upgrades.turned_away,
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
