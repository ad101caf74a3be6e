"""A broker on every kind of listener at once, and peers that are closed after each test."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.interop.matrix import KINDS
from tests.interop.peers.base import Address, Options, Peer
from tidegate.broker import Listener
from tidegate.net.tls import server_context
from tidegate.net.websocket import WebSocketOptions
from tidegate.testing import BrokerThread
from tidegate.testing.certificates import Authority, Issued, make_authority


class Harbour:
    """The broker, the address of each of its listeners by transport, and a client's certificate."""

    def __init__(self, running: BrokerThread, authority: Authority, unix_path: Path) -> None:
        self.running = running
        self.ca_file = authority.certificate
        self.client_certificate: Issued = authority.issue("interop-client")
        names = ("tcp", "tls", "ws", "wss", "mutual")
        ports = [endpoint.port for endpoint in running.broker.endpoints][: len(names)]
        self.addresses = {
            name: Address(transport="tls" if name == "mutual" else name, port=port, ca_file=self.ca_file)
            for name, port in zip(names, ports, strict=True)
        }
        self.addresses["unix"] = Address(transport="unix", path=str(unix_path))

    @property
    def port(self) -> int:
        """Plain MQTT over TCP."""
        return self.addresses["tcp"].port


@pytest.fixture(scope="session")
def harbour(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harbour]:
    folder = tmp_path_factory.mktemp("harbour")
    authority = make_authority(folder)
    server = authority.issue("interop-server")
    context = partial(server_context, server.certificate, server.key)
    unix_path = folder / "mqtt.sock"
    listeners = [
        Listener(port=0),
        Listener(port=0, tls=context()),
        Listener(port=0, websocket=WebSocketOptions()),
        Listener(port=0, tls=context(), websocket=WebSocketOptions()),
        Listener(port=0, tls=context(client_ca=authority.certificate, require_client_certificate=True)),
        Listener(unix_path=unix_path),
    ]
    with BrokerThread(listeners=listeners) as running:
        yield Harbour(running, authority, unix_path)


class Join(Protocol):
    """Makes a peer and connects it; further arguments are fields of `Options`."""

    def __call__(
        self, kind: str, version: int, transport: str = "tcp", *, name: str = "peer", **options: Any
    ) -> Peer: ...


@pytest.fixture
def make(harbour: Harbour, unique: Callable[[str], str]) -> Iterator[Join]:
    """A peer that is not connected yet, with an identifier of this test's own made from `name`."""
    with ExitStack() as stack:

        def make_peer(
            kind: str, version: int, transport: str = "tcp", *, name: str = "peer", **options: Any
        ) -> Peer:
            peer = KINDS[kind](
                Options(
                    address=harbour.addresses[transport],
                    client_id=unique(name),
                    version=version,
                    **options,
                )
            )
            return stack.enter_context(closing(peer))

        yield make_peer


@pytest.fixture
def join(make: Join) -> Join:
    def join_peer(
        kind: str, version: int, transport: str = "tcp", *, name: str = "peer", **options: Any
    ) -> Peer:
        peer = make(kind, version, transport, name=name, **options)
        peer.connect()
        return peer

    return join_peer


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Adds this test's own suffix to a name, so that tests can share a broker."""
    suffix = uuid.uuid4().hex[:12]
    return lambda name: f"{name}-{suffix}"


@pytest.fixture
def topic(unique: Callable[[str], str]) -> str:
    return unique("interop")
