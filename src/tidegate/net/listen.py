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

from tidegate.net.addresses import Endpoint, join_host_port, scheme_of
from tidegate.net.errors import AddressInUse, ListenError
from tidegate.net.unix import bind_unix, unlink_own

ProtocolFactory = Callable[[], asyncio.Protocol]

# Enough for the reconnect storm of a restarted node; the kernel caps it at net.core.somaxconn.
DEFAULT_BACKLOG = 4096

# A TLS handshake takes two round trips; whoever needs longer than this holds a socket for nothing.
DEFAULT_TLS_HANDSHAKE_TIMEOUT = 10.0

# Owner and group: who may connect is decided by the group of the socket file.
DEFAULT_UNIX_MODE = 0o660


@dataclass(slots=True, kw_only=True)
class ListenStatistics:
    """Counts since the listener was opened."""

    accepted: int = 0


class Listening:
    """An open listener. `close` stops accepting; connections already accepted belong to the caller."""

    __slots__ = ("_inode", "_server", "_statistics", "_unix_path", "endpoints")

    def __init__(
        self,
        server: asyncio.AbstractServer,
        endpoints: tuple[Endpoint, ...],
        statistics: ListenStatistics,
        unix_path: Path | None = None,
        inode: int = 0,
    ) -> None:
        self.endpoints = endpoints
        self._server = server
        self._statistics = statistics
        self._unix_path = unix_path
        self._inode = inode

    @property
    def port(self) -> int:
        """The first bound port, with port 0 resolved; 0 for a Unix socket."""
        return self.endpoints[0].port

    def statistics(self) -> ListenStatistics:
        return self._statistics

    def close(self) -> None:
        """Stop accepting at once and remove the socket file; may be called twice."""
        self._server.close()
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
    backlog: int = DEFAULT_BACKLOG,
    reuse_port: bool = False,
    unix_mode: int = DEFAULT_UNIX_MODE,
    tls_handshake_timeout: float = DEFAULT_TLS_HANDSHAKE_TIMEOUT,
) -> Listening:
    """Open one listener, on `host` and `port` or on `unix_path`.

    `host` None binds every interface; port 0 lets the system choose (see `Listening.endpoints`).
    Raises `AddressInUse` or `ListenError`.
    """
    loop = asyncio.get_running_loop()
    statistics = ListenStatistics()

    def factory() -> asyncio.Protocol:
        statistics.accepted += 1
        return protocol_factory()

    handshake_timeout = tls_handshake_timeout if ssl is not None else None
    server: asyncio.AbstractServer
    if unix_path is not None:
        path = Path(unix_path)
        bound, inode = bind_unix(path, mode=unix_mode)
        try:
            server = await loop.create_unix_server(
                factory, sock=bound, ssl=ssl, backlog=backlog, ssl_handshake_timeout=handshake_timeout
            )
        except BaseException:
            bound.close()
            unlink_own(path, inode)
            raise
        return Listening(server, (Endpoint(scheme="unix", path=str(path)),), statistics, path, inode)
    try:
        server = await loop.create_server(
            factory,
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
    scheme = scheme_of(tls=ssl is not None, websocket=False)
    endpoints = tuple(
        Endpoint(scheme=scheme, host=name[0], port=name[1], tls=ssl is not None)
        for name in (bound.getsockname() for bound in server.sockets)
    )
    return Listening(server, endpoints, statistics)


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
