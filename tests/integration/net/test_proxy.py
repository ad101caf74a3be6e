"""Listeners behind a proxy, on real sockets: who the client is, who is cut off, and TLS behind the header."""

import asyncio
import contextlib
import socket
import ssl
import struct
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect as websocket_connect

from tests.integration.net.peers import DEADLINE, Acceptor, Echo, wait_for
from tidegate.broker import Listener
from tidegate.broker.hooks import ConnectRequest, Hooks, Verdict
from tidegate.mqtt import Connack, Connect, PacketReader, Publish, encode_packet
from tidegate.net.listen import Listening, listen
from tidegate.net.proxy import ProxyGate, ProxyOptions
from tidegate.net.proxy_header import SIGNATURE
from tidegate.net.tls import client_context, server_context
from tidegate.net.websocket import WebSocketOptions
from tidegate.testing import BrokerThread
from tidegate.testing.certificates import make_authority
from tidegate.testing.raw import RawClient

CLIENT = ("203.0.113.9", 40001)
V1 = b"PROXY TCP4 203.0.113.9 10.0.0.1 40001 1883\r\n"
V2_BLOCK = bytes.fromhex("cb007109 0a000001 9c41 075b")
LOCAL = SIGNATURE + b"\x20\x00\x00\x00"
HERE = "127.0.0.1"


def v2(tlvs: bytes = b"") -> bytes:
    block = V2_BLOCK + tlvs
    return SIGNATURE + b"\x21\x11" + len(block).to_bytes(2) + block


def certificate_tlv(name: bytes, client: int = 0x07, verify: int = 0) -> bytes:
    value = struct.pack("!BIBH", client, verify, 0x22, len(name)) + name
    return b"\x20" + len(value).to_bytes(2) + value


class Witness:
    """Lets everybody in and remembers what it was told of them."""

    def __init__(self) -> None:
        self.requests: list[ConnectRequest] = []

    def authenticate(self, request: ConnectRequest) -> Verdict:
        self.requests.append(request)
        return Verdict(user=None)


@contextlib.contextmanager
def broker(proxy: ProxyOptions | None = None, **listener: Any) -> Iterator[tuple[BrokerThread, Witness]]:
    witness = Witness()
    listeners = [Listener(port=0, proxy=proxy or ProxyOptions(), **listener)]
    with BrokerThread(listeners=listeners, hooks=Hooks(authenticator=witness)) as running:
        yield running, witness


# -- a broker behind a proxy ----------------------------------------------------------------------------------


@pytest.mark.parametrize("header", [V1, v2()], ids=["v1", "v2"])
def test_broker_sees_the_address_of_the_client(header: bytes):
    with broker() as (running, witness), RawClient(running.port) as client:
        client.send_bytes(header)
        assert client.connect("behind").reason_code == 0
        assert witness.requests[0].peer == "203.0.113.9:40001"
        client.subscribe("t", qos=1)
        client.publish("t", b"x" * 100_000, qos=1)
        client.acknowledge(client.take(Publish, topic="t", payload=b"x" * 100_000))
        client.disconnect()


def test_header_and_connect_in_one_segment_are_both_understood():
    connect = encode_packet(Connect(client_id="eager", protocol_level=5), 5)
    with broker() as (running, witness), RawClient(running.port) as client:
        client.send_bytes(v2() + connect)
        assert client.expect(Connack).reason_code == 0
        assert witness.requests[0].peer == "203.0.113.9:40001"


@pytest.mark.parametrize("header", [LOCAL, b"PROXY UNKNOWN\r\n"], ids=["v2 LOCAL", "v1 UNKNOWN"])
def test_health_check_of_the_proxy_keeps_its_own_address(header: bytes):
    with broker() as (running, witness), RawClient(running.port) as client:
        client.send_bytes(header)
        assert client.connect("check").reason_code == 0
        assert witness.requests[0].peer.startswith("127.0.0.1:")


def test_client_without_header_is_cut_off_at_once():
    options = ProxyOptions(header_timeout=60)
    with broker(options) as (running, witness), RawClient(running.port) as client:
        client.send(Connect(client_id="bare", protocol_level=5))
        assert client.expect_closed() is None
        assert not witness.requests
        assert not client.inbox


def test_second_header_is_not_taken_for_another_address():
    with broker() as (running, witness), RawClient(running.port) as client:
        client.send_bytes(v2() + V1)
        assert client.expect_closed() is None
        assert not witness.requests


def test_broker_sees_the_certificate_that_a_listed_proxy_has_verified():
    with broker(ProxyOptions(trusted=(HERE,))) as (running, witness), RawClient(running.port) as client:
        client.send_bytes(v2(certificate_tlv(b"sensor-7")))
        client.connect("c")
        assert witness.requests[0].certificate == {"subject": ((("commonName", "sensor-7"),),)}


@pytest.mark.parametrize(
    ("trusted", "tlv"),
    [
        ((), certificate_tlv(b"admin")),
        ((HERE,), certificate_tlv(b"admin", verify=1)),
        ((HERE,), certificate_tlv(b"admin", client=0x01)),
    ],
    ids=["any proxy", "not verified", "not shown"],
)
def test_certificate_is_not_believed_from_anybody_or_unverified(trusted: tuple[str, ...], tlv: bytes):
    with broker(ProxyOptions(trusted=trusted)) as (running, witness), RawClient(running.port) as client:
        client.send_bytes(v2(tlv))
        client.connect("c")
        assert witness.requests[0].certificate is None


def test_websocket_client_behind_a_proxy_is_seen_by_its_own_address():
    with broker(websocket=WebSocketOptions()) as (running, witness):
        plain = socket.create_connection((HERE, running.port), DEADLINE)
        plain.sendall(v2())
        with websocket_connect(
            f"ws://{HERE}/mqtt", sock=plain, subprotocols=["mqtt"], compression=None, proxy=None
        ) as client:
            client.send(encode_packet(Connect(client_id="page", protocol_level=5), 5))
            reader = PacketReader(5)
            assert [type(packet) for packet in reader.feed(client.recv(DEADLINE))] == [Connack]
        assert witness.requests[0].peer == "203.0.113.9:40001"


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The server's context, which asks for a certificate, and that of a client called sensor-1."""
    folder: Path = tmp_path_factory.mktemp("tls")
    authority = make_authority(folder)
    server, client = authority.issue("server"), authority.issue("sensor-1")
    return (
        server_context(server.certificate, server.key, client_ca=authority.certificate),
        client_context(ca_file=authority.certificate, certfile=client.certificate, keyfile=client.key),
    )


@pytest.mark.parametrize("header", [V1, v2(certificate_tlv(b"admin"))], ids=["v1", "v2"])
def test_tls_behind_the_header_keeps_address_and_the_certificate_of_its_own_handshake(
    contexts, header: bytes
):
    with broker(ProxyOptions(trusted=(HERE,)), tls=contexts[0]) as (running, witness):
        plain = socket.create_connection((HERE, running.port), DEADLINE)
        plain.sendall(header)
        with contexts[1].wrap_socket(plain, server_hostname="localhost") as secure:
            secure.sendall(encode_packet(Connect(client_id="tls", protocol_level=5), 5))
            assert [type(packet) for packet in PacketReader(5).feed(secure.recv(65536))] == [Connack]
        request = witness.requests[0]
        assert request.peer == "203.0.113.9:40001"
        assert request.certificate is not None
        assert ((("commonName", "sensor-1"),)) in request.certificate["subject"]


# -- listeners on both event loops ----------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def serving(acceptor: Acceptor, **options: Any) -> AsyncIterator[Listening]:
    listening = await listen(acceptor, **{"host": HERE, "proxy": ProxyOptions(), **options})
    try:
        yield listening
    finally:
        listening.close()
        await listening.wait_closed()
        for made in acceptor.made:
            if made.transport is not None and not made.lost:
                made.transport.abort()
                await made.wait_lost()


async def opened(listening: Listening, first: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(HERE, listening.port)
    writer.write(first)
    return reader, writer


async def ends(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The server ends the connection without a word."""
    with contextlib.suppress(ConnectionResetError):
        async with asyncio.timeout(DEADLINE):
            assert await reader.read() == b""
    writer.close()
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        await writer.wait_closed()


@contextlib.asynccontextmanager
async def tls_through(
    listening: Listening, context: ssl.SSLContext, first: bytes, *, joined: bool
) -> AsyncIterator[tuple[ssl.SSLObject, asyncio.StreamReader, asyncio.StreamWriter]]:
    """A TLS client whose header is, if `joined`, in one segment with its ClientHello."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    reader, writer = await asyncio.open_connection(HERE, listening.port)
    pending = first
    if not joined:
        for byte in first:
            writer.write(bytes((byte,)))
            await asyncio.sleep(0)  # another turn, another segment
        pending = b""
    async with asyncio.timeout(DEADLINE):
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(pending + outgoing.read())
                pending = b""
                incoming.write(await reader.read(65536))
        tls.write(b"hello")
        writer.write(outgoing.read())
        yield tls, reader, writer
        while True:
            try:
                assert tls.read() == b"hello"
                break
            except ssl.SSLWantReadError:
                incoming.write(await reader.read(65536))
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("header", [V1, v2(b"\x04\x02\x00" + bytes(512))], ids=["v1", "v2"])
@pytest.mark.parametrize("joined", [True, False], ids=["joined", "cut"])
def test_tls_begins_right_behind_the_header(run, contexts, header: bytes, joined: bool):
    async def main():
        acceptor = Acceptor(Echo)
        async with serving(acceptor, ssl=contexts[0]) as listening:
            assert listening.endpoints[0].tls
            async with tls_through(listening, contexts[1], header, joined=joined):
                inner = await acceptor.wait_made()
                assert inner.link.get_extra_info("peername") == CLIENT
                assert inner.link.get_extra_info("proxy_peername")[0] == HERE
                assert inner.link.get_extra_info("cipher")
                assert inner.link.get_protocol() is inner
                accepted = inner.link.get_extra_info("socket")
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            await inner.wait_lost()
            assert bytes(inner.received) == b"hello"
            statistics = listening.statistics()
            assert (statistics.proxied, statistics.proxy_refused, statistics.proxy_waiting) == (1, 0, 0)

    run(main())


def test_tls_before_the_header_is_cut_off(run, contexts):
    async def main():
        acceptor = Acceptor(Echo)
        async with serving(acceptor, ssl=contexts[0]) as listening:
            with pytest.raises((OSError, ssl.SSLError)):
                await asyncio.open_connection(
                    HERE, listening.port, ssl=contexts[1], server_hostname="localhost"
                )
            await wait_for(lambda: listening.statistics().proxy_refused == 1)
            assert not acceptor.made

    run(main())


def test_failed_tls_behind_a_right_header_leaves_nothing_behind(run, contexts):
    async def main():
        acceptor = Acceptor(Echo)
        async with serving(acceptor, ssl=contexts[0]) as listening:
            await ends(*await opened(listening, V1 + b"\x10\x0c not TLS, surely"))
            await wait_for(lambda: listening.statistics().proxy_waiting == 0)
            assert not acceptor.made

    run(main())


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize(
    "first", [b"\x10\x0c\x00\x04MQTT", b"GET / HTTP/1.1\r\n", SIGNATURE + b"\x21\x11\xff\xff"]
)
def test_wrong_first_bytes_are_cut_off_long_before_the_deadline(run, contexts, secure: bool, first: bytes):
    async def main():
        acceptor = Acceptor(Echo)
        options = ProxyOptions(header_timeout=60)
        async with serving(acceptor, proxy=options, ssl=contexts[0] if secure else None) as listening:
            await ends(*await opened(listening, first))
            await wait_for(lambda: listening.statistics().proxy_refused == 1)
            assert listening.statistics().proxy_waiting == 0
            assert not acceptor.made

    run(main())


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("first", [b"", V1[:-1], SIGNATURE])
def test_slow_header_is_cut_off_at_the_deadline(run, contexts, secure: bool, first: bytes):
    async def main():
        acceptor = Acceptor(Echo)
        options = ProxyOptions(header_timeout=0.1)
        async with serving(acceptor, proxy=options, ssl=contexts[0] if secure else None) as listening:
            begin = time.monotonic()
            await ends(*await opened(listening, first))
            assert time.monotonic() - begin >= 0.09
            await wait_for(lambda: listening.statistics().proxy_refused == 1)
            assert not acceptor.made

    run(main())


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_look_at_the_open_port_is_no_refusal_but_half_a_header_is(run, contexts, secure: bool):
    async def main():
        async with serving(Acceptor(), ssl=contexts[0] if secure else None) as listening:
            for first, refused in ((b"", 0), (V1[:9], 1)):
                _, writer = await opened(listening, first)
                await wait_for(lambda: listening.statistics().proxy_waiting == 1)
                writer.close()
                await writer.wait_closed()
                await wait_for(lambda: listening.statistics().proxy_waiting == 0)
                assert listening.statistics().proxy_refused == refused

    run(main())


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_peer_that_is_not_a_trusted_proxy_is_cut_off(run, contexts, secure: bool):
    async def main():
        acceptor = Acceptor(Echo)
        options = ProxyOptions(trusted=("10.0.0.0/8", "::1"))
        async with serving(acceptor, proxy=options, ssl=contexts[0] if secure else None) as listening:
            await ends(*await opened(listening, v2()))
            assert listening.statistics().proxy_refused == 1
            assert not acceptor.made

    run(main())


def test_trusted_ipv4_proxy_is_known_on_a_socket_for_both_families(run):
    async def main():
        acceptor = Acceptor(Echo)
        both = socket.socket(socket.AF_INET6)
        both.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        both.bind(("::", 0))
        port = both.getsockname()[1]
        gate = ProxyGate(acceptor, ProxyOptions(trusted=("127.0.0.0/8",)))
        server = await asyncio.get_running_loop().create_server(gate, sock=both)
        reader, writer = await asyncio.open_connection(HERE, port)
        writer.write(v2() + b"hello")
        assert await reader.readexactly(5) == b"hello"
        assert acceptor.made[0].link.get_extra_info("proxy_peername")[0] == "::ffff:127.0.0.1"
        writer.close()
        await writer.wait_closed()
        await acceptor.made[0].wait_lost()
        server.close()
        await server.wait_closed()

    run(main())


def test_proxy_on_a_unix_socket_is_trusted_with_the_certificate(run, tmp_path: Path):
    async def main():
        acceptor = Acceptor(Echo)
        path = tmp_path / "s"
        async with serving(acceptor, host=None, unix_path=path):
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(v2(certificate_tlv(b"sensor-7")) + b"hello")
            assert await reader.readexactly(5) == b"hello"
            link = acceptor.made[0].link
            assert link.get_extra_info("peername") == CLIENT
            assert link.get_extra_info("peercert") == {"subject": ((("commonName", "sensor-7"),),)}
            writer.close()
            await writer.wait_closed()
            await acceptor.made[0].wait_lost()

    run(main())


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_connections_that_wait_are_cut_off_when_the_listener_closes(run, contexts, secure: bool):
    async def main():
        options = ProxyOptions()
        async with serving(Acceptor(), proxy=options, ssl=contexts[0] if secure else None) as listening:
            waiting = [await opened(listening, V1[:9]) for _ in range(2)]
            await wait_for(lambda: listening.statistics().proxy_waiting == 2)
            listening.close()
            for each in waiting:
                await ends(*each)
            await wait_for(lambda: listening.statistics().proxy_waiting == 0)

    run(main())


def test_writing_is_paused_and_resumed_through_the_proxied_transport(run):
    async def main():
        acceptor = Acceptor(Echo)
        async with serving(acceptor) as listening:
            reader, writer = await opened(listening, V1)
            inner = await acceptor.wait_made()
            inner.link.set_write_buffer_limits(high=1000)
            assert inner.link.get_write_buffer_limits()[1] == 1000
            size = 0
            while not inner.writing_pauses:
                inner.link.write(bytes(65536))
                size += 65536
            assert inner.link.get_write_buffer_size() > 1000
            inner.link.pause_reading()
            assert not inner.link.is_reading()
            inner.link.resume_reading()
            await reader.readexactly(size)
            await inner.wait_until(lambda: inner.writing_resumes > 0)
            inner.link.writelines([b"by", b"e"])
            inner.link.write_eof()
            assert await reader.read() == b"bye"
            writer.close()
            await writer.wait_closed()
            await inner.wait_lost()
            assert inner.link.is_closing()

    run(main())
