"""Runs the console until it is told to stop, or until the process that started it is gone."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from tidegate.console.app import ConsoleApp
from tidegate.console.errors import ConsoleError
from tidegate.console.settings import ConsoleSettings
from tidegate.console.watch import MakeClient, NodeWatch
from tidegate.net.addresses import join_host_port
from tidegate.net.doorway import Doorway
from tidegate.net.handshakes import HandshakeLog, TLSGate

FALLBACK_PORTS: Final = 50
BACKLOG: Final = 1_024
PARENT_POLL: Final = 0.5
MOST_IDLE: Final = 256  # connections that ask for nothing at the moment
PATIENCE: Final = 15.0  # seconds until a connection must have asked


class _Connection(H11Protocol):
    """It has a place in the door as long as there is no whole request to be answered."""

    def __init__(self, door: Doorway, **options: Any) -> None:
        super().__init__(**options)
        self._door = door

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._door.enter(self, transport)
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._door.leave(self)
        super().connection_lost(exc)

    def abort(self) -> None:
        self.transport.abort()

    def handle_events(self) -> None:
        super().handle_events()
        self._settle()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._settle()

    def _settle(self) -> None:
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete and not cycle.more_body:
            self._door.leave(self)
        elif self not in self._door and not self.transport.is_closing():
            self._door.enter(self, self.transport)


class _Server(uvicorn.Server):
    """Streams have no end of their own: they are told when the server is to stop."""

    def __init__(self, config: uvicorn.Config, app: ConsoleApp) -> None:
        super().__init__(config)
        self._console = app
        self._door = Doorway(MOST_IDLE)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As the library does it, but nobody is kept out by connections that ask for nothing."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            raise ConsoleError("the console could not be started", "the log says why")
        make: Callable[[], asyncio.Protocol] = partial(
            _Connection,
            self._door,
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
        if self.config.ssl is not None:
            make = TLSGate(make, self.config.ssl, PATIENCE, HandshakeLog(), self._door)
        loop = asyncio.get_running_loop()
        self.servers = [await loop.create_server(make, sock=sock, backlog=BACKLOG) for sock in sockets or ()]
        self.started = True

    async def on_tick(self, counter: int) -> bool:
        for late in self._door.expired(PATIENCE):
            late.abort()
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._console.is_stopping.set()
        self.should_exit = True


async def serve(
    settings: ConsoleSettings,
    make_client: MakeClient,
    *,
    port_fallback: bool = False,
    parent: int = 0,
    say: Callable[[str], None] = print,
) -> None:
    """Raises ConsoleError if it cannot listen. `parent`: end with this process."""
    settings.check()
    sock = _listen(settings, port_fallback)
    settings = replace(settings, port=sock.getsockname()[1])
    app = ConsoleApp(settings, NodeWatch(make_client, settings.namespace))
    config = uvicorn.Config(
        app.build(),
        log_config=None,
        access_log=False,
        lifespan="on",
        server_header=False,
        proxy_headers=False,  # an address that the client chooses would let it guess passwords without end
        date_header=False,
        timeout_graceful_shutdown=2,
        ssl_certfile=settings.certfile,
        ssl_keyfile=settings.keyfile,
        h11_max_incomplete_event_size=32_768,
    )
    server = _Server(config, app)
    watching = asyncio.create_task(_watch_parent(parent, server)) if parent else None
    scheme = "https" if settings.is_tls else "http"
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::", "") else settings.host
    say(f"tidegate console on {scheme}://{join_host_port(host.strip('[]'), settings.port)}/")
    try:
        await server.serve(sockets=[sock])
    finally:
        if watching is not None:
            watching.cancel()


async def _watch_parent(parent: int, server: _Server) -> None:
    while os.getppid() == parent:
        await asyncio.sleep(PARENT_POLL)
    server.stop()


def _listen(settings: ConsoleSettings, port_fallback: bool) -> socket.socket:
    host = settings.host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    tries = FALLBACK_PORTS if port_fallback else 1
    for port in range(settings.port, settings.port + tries):
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
            sock.listen(BACKLOG)
        except OSError as error:
            sock.close()
            if port == settings.port + tries - 1:
                raise ConsoleError(
                    f"the console cannot listen on {join_host_port(host, port)}: {error.strerror}",
                    "choose another with --http-port; 0 picks a free one",
                ) from None
            continue
        sock.setblocking(False)
        return sock
    raise AssertionError("unreachable")
