"""Both ends of a WebSocket over an in-memory pair: every cut of the bytes gives the same stream."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.frames import CloseCode, Frame, Opcode
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from tests.integration.net.peers import Echo, Recorder
from tidegate.net.addresses import parse_address
from tidegate.net.frames import MAX_SENT_FRAME_BYTES, binary_frames
from tidegate.net.memory import memory_pair
from tidegate.net.websocket import Upgrades, WebSocketOptions, WebSocketServer
from tidegate.net.websocket_client import WebSocketClient


async def _exchange(writes: list[bytes], chunk_bytes: int) -> tuple[bytes, bytes]:
    server_inner, upgrades = Echo(), Upgrades()
    server = WebSocketServer(lambda: server_inner, WebSocketOptions(), upgrades)
    client = WebSocketClient(Recorder, parse_address("ws://localhost/mqtt"))
    async with asyncio.timeout(10):
        memory_pair(server, client, chunk_bytes=chunk_bytes)
        transport, client_inner = await client.opened
        assert isinstance(client_inner, Recorder)
        for data in writes:
            transport.write(data)
        total = sum(map(len, writes))
        await client_inner.wait_received(total)
        transport.close()
        await client_inner.wait_lost()
        await server_inner.wait_lost()
    assert (client_inner.lost, server_inner.lost) == ([None], [None])
    assert (upgrades.done, upgrades.failed, len(upgrades.pending)) == (1, 0, 0)
    return bytes(server_inner.received), bytes(client_inner.received)


@settings(deadline=None, max_examples=60)
@given(
    writes=st.lists(st.binary(max_size=300), max_size=8),
    chunk_bytes=st.one_of(st.integers(1, 40), st.just(100_000)),
)
def test_any_cut_of_the_bytes_gives_the_same_stream(writes: list[bytes], chunk_bytes: int):
    expected = b"".join(writes)
    assert asyncio.run(_exchange(writes, chunk_bytes)) == (expected, expected)


def test_long_writes_cross_both_ways_whole():
    data = bytes(range(256)) * (MAX_SENT_FRAME_BYTES // 256 + 1)
    assert asyncio.run(_exchange([data], 100_000)) == (data, data)


@pytest.mark.parametrize("length", [1, 125, 126, 127, 65535, 65536, MAX_SENT_FRAME_BYTES])
def test_frames_written_by_hand_are_those_of_the_library(length: int):
    data = b"x" * length
    assert binary_frames(data) == Frame(Opcode.BINARY, data).serialize(mask=False)
    assert binary_frames(memoryview(data)) == binary_frames(data)


def test_write_longer_than_a_frame_becomes_several():
    data = bytes(range(256)) * (MAX_SENT_FRAME_BYTES // 256) + b"rest"
    expected = binary_frames(data[:MAX_SENT_FRAME_BYTES]) + binary_frames(b"rest")
    assert binary_frames(data) == expected


def test_inner_protocol_may_be_replaced_and_close_inside_connection_made():
    class ClosesAtOnce(Recorder):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            transport.close()

    async def main():
        refused = ClosesAtOnce()
        server = WebSocketServer(lambda: refused, WebSocketOptions())
        client = WebSocketClient(Recorder, parse_address("ws://localhost/mqtt"))
        async with asyncio.timeout(10):
            memory_pair(server, client)
            transport, first = await client.opened
            second = Recorder()
            transport.set_protocol(second)
            assert transport.get_protocol() is second
            await refused.wait_lost()
            await second.wait_lost()
            assert isinstance(first, Recorder)
            assert not first.lost

    asyncio.run(main())


def test_data_and_close_in_one_chunk_are_both_handled_even_when_the_inner_end_answers():
    async def main():
        inner = Echo()
        server = WebSocketServer(lambda: inner, WebSocketOptions())
        client = WebSocketClient(Recorder, parse_address("ws://localhost/mqtt"))
        async with asyncio.timeout(10):
            memory_pair(server, client)
            transport, outside = await client.opened
            transport.write(b"last")
            transport.close()
            assert isinstance(outside, Recorder)
            await outside.wait_lost()
            await inner.wait_lost()
            assert (inner.received, inner.eofs) == (b"last", 1)

    asyncio.run(main())


REQUEST = (
    b"GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
)

FRAMES = st.builds(
    lambda opcode, data, fin, mask: Frame(opcode, data, fin).serialize(mask=mask),
    st.sampled_from([Opcode.BINARY, Opcode.BINARY, Opcode.BINARY, Opcode.CONT, Opcode.PING, Opcode.PONG]),
    st.sampled_from([b"", b"x", b"payload", b"y" * 125]),
    st.just(True),
    st.sampled_from([True] * 19 + [False]),
)
FRAGMENTS = st.lists(st.sampled_from([b"", b"f", b"z" * 90]), min_size=2, max_size=4).map(
    lambda parts: b"".join(
        Frame(Opcode.CONT if n else Opcode.BINARY, part, n == len(parts) - 1).serialize(mask=True)
        for n, part in enumerate(parts)
    )
)
STRAY = st.sampled_from(
    [
        Frame(Opcode.TEXT, b"text").serialize(mask=True),
        Frame(Opcode.CLOSE, b"\x03\xe8").serialize(mask=True),
        Frame(Opcode.BINARY, b"begun", False).serialize(mask=True),
        Frame(Opcode.BINARY, b"long" * 500).serialize(mask=True),
        b"\x83\x80\x00\x00\x00\x00",
        b"\xc2\x80\x00\x00\x00\x00",
    ]
)


def _judged_by_the_library(stream: bytes) -> tuple[bytes, bytes]:
    """The payload before the connection ends and all bytes to answer, byte by byte and by the library."""
    library = ServerProtocol(subprotocols=[Subprotocol("mqtt")], max_size=(None, 1000))
    library.receive_data(REQUEST)
    library.send_response(library.accept(library.events_received()[0]))  # type: ignore[arg-type]
    library.data_to_send()
    payload, answers = b"", b""
    for byte in stream:
        library.receive_data(bytes([byte]))
        for event in library.events_received():
            assert isinstance(event, Frame)
            if event.opcode is Opcode.TEXT:
                library.fail(CloseCode.UNSUPPORTED_DATA, "MQTT needs binary frames")
            elif event.opcode in (Opcode.BINARY, Opcode.CONT):
                payload += event.data
        answers += b"".join(library.data_to_send())
    return payload, answers


@settings(deadline=None, max_examples=300)
@given(
    pieces=st.lists(st.one_of(FRAMES, FRAMES, FRAGMENTS, STRAY), max_size=12), chunk_bytes=st.integers(1, 400)
)
def test_frames_cut_by_hand_mean_what_the_library_says(pieces: list[bytes], chunk_bytes: int):
    stream = b"".join(pieces)

    async def main() -> tuple[bytes, bytes]:
        inner, peer = Recorder(), Recorder()
        server = WebSocketServer(lambda: inner, WebSocketOptions(max_frame_bytes=1000))
        async with asyncio.timeout(10):
            link, _ = memory_pair(peer, server, chunk_bytes=chunk_bytes)
            link.write(REQUEST)
            await peer.wait_until(lambda: peer.received.endswith(b"\r\n\r\n"))
            peer.received.clear()
            link.write(stream)
            link.write_eof()
            await peer.wait_lost()
            await inner.wait_lost()
        assert inner.lost == [None]
        return bytes(inner.received), bytes(peer.received)

    assert asyncio.run(main()) == _judged_by_the_library(stream)


@settings(deadline=None, max_examples=150)
@given(data=st.binary(min_size=1, max_size=200), upgraded=st.booleans())
def test_any_bytes_from_a_peer_end_in_order_or_are_waited_for(data: bytes, upgraded: bool):
    async def main():
        inner = Recorder()
        options = WebSocketOptions(handshake_timeout=0.05, close_timeout=0.05)
        server = WebSocketServer(lambda: inner, options)
        peer = Recorder()
        async with asyncio.timeout(10):
            link, _ = memory_pair(peer, server)
            if upgraded:
                link.write(REQUEST)
            link.write(data)
            link.write_eof()
            await peer.wait_lost()
            if upgraded:
                await inner.wait_lost()
        assert len(inner.lost) == (1 if upgraded else 0)

    asyncio.run(main())
