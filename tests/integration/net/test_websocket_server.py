"""The server's end, against the `websockets` library's client and against sockets that misbehave."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import CloseCode, Frame, Opcode

from tests.integration.net.peers import DEADLINE, Acceptor, Echo, Recorder, wait_for
from tidegate.net.listen import Listening, listen
from tidegate.net.websocket import MAX_HEAD_BYTES, WebSocketOptions

REQUEST = (
    b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
)


@contextlib.asynccontextmanager
async def serving(acceptor: Acceptor, **options) -> AsyncIterator[Listening]:
    listening = await listen(acceptor, host="127.0.0.1", websocket=WebSocketOptions(**options))
    try:
        yield listening
    finally:
        listening.close()
        for made in acceptor.made:
            if made.transport is not None and not made.lost:
                made.transport.abort()
                await made.wait_lost()


def client(listening: Listening, path: str = "/mqtt", **options) -> connect:
    options.setdefault("subprotocols", ["mqtt"])
    return connect(f"ws://127.0.0.1:{listening.port}{path}", compression=None, proxy=None, **options)


async def raw(listening: Listening, first: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", listening.port)
    writer.write(first)
    return reader, writer


async def status_of(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
    """The status of an answer after which the server ends the connection."""
    async with asyncio.timeout(DEADLINE):
        answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return int(answer.split(b" ", 2)[1])


def masked(opcode: Opcode, data: bytes, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin).serialize(mask=True)


async def closed_with(connection: ClientConnection) -> int:
    async with asyncio.timeout(DEADLINE):
        await connection.wait_closed()
    assert connection.close_code is not None
    return connection.close_code


@pytest.mark.parametrize("path", ["/", "/mqtt", "/mqtt?token=x"])
def test_binary_frames_reach_the_inner_protocol_and_come_back(run, path: str):
    async def main():
        acceptor = Acceptor(Echo)
        async with serving(acceptor) as listening, client(listening, path) as connection:
            assert connection.subprotocol == "mqtt"
            for data in (b"a", b"b" * 125, b"c" * 126, b"d" * 65535, b"e" * 65536):
                await connection.send(data)
                assert await connection.recv() == data
            assert listening.statistics().upgraded == 1

    run(main())


@pytest.mark.parametrize("offered, selected", [(["mqttv3.1"], "mqttv3.1"), (["mqttv3.1", "mqtt"], "mqtt")])
def test_mqtt_is_preferred_and_the_old_name_accepted(run, offered, selected):
    async def main():
        async with serving(Acceptor()) as listening, client(listening, subprotocols=offered) as connection:
            assert connection.subprotocol == selected

    run(main())


@pytest.mark.parametrize(
    "path, options, status",
    [
        ("/other", {}, 404),
        ("/mqtt", {"subprotocols": None}, 400),
        ("/mqtt", {"subprotocols": ["chat"]}, 400),
        ("/mqtt", {"origin": "https://evil.example"}, 403),
    ],
)
def test_upgrade_that_cannot_be_accepted_is_refused_with_its_status(run, path, options, status):
    async def main():
        acceptor = Acceptor()
        async with serving(acceptor, origins=("https://good.example",)) as listening:
            with pytest.raises(InvalidStatus) as caught:
                await client(listening, path, **options)
            assert caught.value.response.status_code == status
            assert not acceptor.made

    run(main())


@pytest.mark.parametrize("origin", ["https://good.example", None])
def test_listed_origin_and_clients_that_are_no_browsers_are_let_in(run, origin):
    async def main():
        async with (
            serving(Acceptor(), origins=("https://good.example",)) as listening,
            client(listening, origin=origin) as connection,
        ):
            assert connection.subprotocol == "mqtt"

    run(main())


def test_every_path_is_accepted_when_paths_is_none(run):
    async def main():
        async with serving(Acceptor(), paths=None) as listening, client(listening, "/any/where"):
            pass

    run(main())


@pytest.mark.parametrize(
    "request_bytes, status",
    [
        (b"GET /mqtt HTTP/1.1\r\nHost: h\r\n\r\n", 426),
        (b"POST /mqtt HTTP/1.1\r\nHost: h\r\n\r\n", 405),
        (REQUEST.replace(b"Version: 13", b"Version: 8"), 400),
        (REQUEST.replace(b"dGhlIHNhbXBsZSBub25jZQ==", b"short"), 400),
        (b"GET /mqtt HTTP/1.1\r\nX: " + b"x" * MAX_HEAD_BYTES, 431),
        (b"GET /mqtt HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n", 431),
    ],
)
def test_request_that_is_no_upgrade_is_answered_and_ended(run, request_bytes: bytes, status: int):
    async def main():
        acceptor = Acceptor()
        async with serving(acceptor) as listening:
            assert await status_of(*await raw(listening, request_bytes)) == status
            assert not acceptor.made

    run(main())


@pytest.mark.parametrize("first", [b"\x10\x0c\x00\x04MQTT\x05\x02", b"\x16\x03\x01\x02", b"garbage\r\n\r\n"])
def test_peer_that_does_not_speak_http_is_cut_off_at_once(run, first: bytes):
    async def main():
        acceptor = Acceptor()
        async with serving(acceptor, handshake_timeout=60.0) as listening:
            reader, writer = await raw(listening, first)
            async with asyncio.timeout(DEADLINE):
                with contextlib.suppress(ConnectionResetError):
                    assert await reader.read() == b""
            writer.close()
            with contextlib.suppress(ConnectionResetError):
                await writer.wait_closed()
            assert not acceptor.made

    run(main())


def test_handshake_may_come_byte_by_byte_and_first_frames_right_behind_it(run):
    async def main():
        acceptor = Acceptor(Echo)
        async with serving(acceptor) as listening:
            reader, writer = await raw(listening, b"")
            # Every byte is its own data_received: the pair of protocols below sees no boundaries it likes.
            for byte in REQUEST[:-1]:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0)
            writer.write(REQUEST[-1:] + masked(Opcode.BINARY, b"eager"))
            async with asyncio.timeout(DEADLINE):
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 101 ")
                assert b"sec-websocket-protocol: mqtt\r\n" in head.lower()
                assert await reader.readexactly(7) == b"\x82\x05eager"
            assert acceptor.made[0].received == b"eager"
            writer.close()
            await writer.wait_closed()

    run(main())


@pytest.mark.parametrize("first", [b"", REQUEST[:40], b"GET"])
def test_slow_handshake_is_cut_off_at_its_deadline(run, first: bytes):
    async def main():
        async with serving(Acceptor(), handshake_timeout=0.2) as listening:
            reader, writer = await raw(listening, first)
            started = asyncio.get_running_loop().time()
            async with asyncio.timeout(DEADLINE):
                with contextlib.suppress(ConnectionResetError):
                    assert await reader.read() == b""
            assert asyncio.get_running_loop().time() - started >= 0.15
            assert listening.statistics().upgrades_failed == 1
            assert listening.statistics().upgrading == 0
            writer.close()
            with contextlib.suppress(ConnectionResetError):
                await writer.wait_closed()

    run(main())


def test_closing_the_listener_cuts_off_unfinished_upgrades(run):
    async def main():
        async with serving(Acceptor()) as listening:
            probe = Recorder()
            await asyncio.get_running_loop().create_connection(lambda: probe, "127.0.0.1", listening.port)
            await wait_for(lambda: listening.statistics().upgrading == 1)
            listening.close()
            await probe.wait_lost()

    run(main())


def test_fragments_are_passed_on_before_their_message_ends(run):
    async def main():
        acceptor = Acceptor()
        async with serving(acceptor, max_frame_bytes=1000) as listening:
            reader, writer = await raw(listening, REQUEST)
            inner = await acceptor.wait_made()
            writer.write(masked(Opcode.BINARY, b"a" * 1000, fin=False))
            await inner.wait_received(1000)
            # The message is allowed to grow past the limit of a frame, with a Ping in its middle.
            for count in range(2, 6):
                writer.write(masked(Opcode.PING, b"p") + masked(Opcode.CONT, b"b" * 1000, fin=False))
                await inner.wait_received(count * 1000)
            writer.write(masked(Opcode.CONT, b"end"))
            await inner.wait_received(5003)
            assert inner.received == b"a" * 1000 + b"b" * 4000 + b"end"
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
            assert await reader.readexactly(12) == b"\x8a\x01p" * 4
            writer.close()
            await inner.wait_lost()

    run(main())


def test_many_frames_in_one_chunk_arrive_in_one_piece(run):
    async def main():
        acceptor = Acceptor()
        async with serving(acceptor) as listening:
            _, writer = await raw(listening, REQUEST)
            inner = await acceptor.wait_made()
            writer.write(b"".join(masked(Opcode.BINARY, bytes([n])) for n in range(100)))
            await inner.wait_received(100)
            assert inner.chunks == [bytes(range(100))]
            writer.close()
            await inner.wait_lost()

    run(main())


def test_frame_split_over_many_chunks_arrives_whole(run):
    async def main():
        acceptor = Acceptor()
        async with serving(acceptor) as listening:
            _, writer = await raw(listening, REQUEST)
            inner = await acceptor.wait_made()
            for byte in masked(Opcode.BINARY, b"x" * 300):
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0)
            await inner.wait_received(300)
            assert inner.received == b"x" * 300
            writer.close()
            await inner.wait_lost()

    run(main())


def test_text_frame_closes_with_1003_after_what_came_before_it(run):
    async def main():
        acceptor = Acceptor()
        async with serving(acceptor) as listening, client(listening) as connection:
            await connection.send(b"before")
            await connection.send("text")
            with contextlib.suppress(ConnectionClosed):
                await connection.send(b"after")
            assert await closed_with(connection) == CloseCode.UNSUPPORTED_DATA
            await acceptor.made[0].wait_lost()
            assert acceptor.made[0].received == b"before"

    run(main())


@pytest.mark.parametrize(
    "wrong, code",
    [
        (masked(Opcode.BINARY, b"x" * 2001), CloseCode.MESSAGE_TOO_BIG),
        (masked(Opcode.BINARY, b"", fin=False) + masked(Opcode.CONT, b"x" * 2001), CloseCode.MESSAGE_TOO_BIG),
        (b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff", CloseCode.MESSAGE_TOO_BIG),
        (Frame(Opcode.BINARY, b"unmasked").serialize(mask=False), CloseCode.PROTOCOL_ERROR),
        (masked(Opcode.CONT, b"continues nothing"), CloseCode.PROTOCOL_ERROR),
        (b"\x83\x80\x00\x00\x00\x00", CloseCode.PROTOCOL_ERROR),
        (b"\xc2\x80\x00\x00\x00\x00", CloseCode.PROTOCOL_ERROR),
    ],
    # Masks are random, and a test must have the same name in every process.
    ids=["long", "long-fragment", "huge", "unmasked", "continues-nothing", "unknown-opcode", "reserved-bit"],
)
def test_frame_that_breaks_the_rules_closes_with_its_code(run, wrong: bytes, code: CloseCode):
    async def main():
        acceptor = Acceptor()
        async with serving(acceptor, max_frame_bytes=2000) as listening:
            reader, writer = await raw(listening, REQUEST)
            inner = await acceptor.wait_made()
            writer.write(wrong)
            async with asyncio.timeout(DEADLINE):
                await reader.readuntil(b"\r\n\r\n")
                answer = await reader.read()
            assert answer[0] == 0x88
            assert int.from_bytes(answer[2:4], "big") == code
            writer.close()
            await inner.wait_lost()
            assert inner.received == b""

    run(main())


def test_pings_are_answered(run):
    async def main():
        async with serving(Acceptor()) as listening, client(listening) as connection:
            async with asyncio.timeout(DEADLINE):
                await (await connection.ping(b"are you there"))

    run(main())


def test_inner_close_sends_what_was_written_and_a_normal_close(run):
    async def main():
        acceptor = Acceptor()
        async with serving(acceptor) as listening, client(listening) as connection:
            inner = await acceptor.wait_made()
            inner.link.write(b"x" * 100_000)
            inner.link.write(b"last words")
            inner.link.close()
            assert inner.link.is_closing()
            inner.link.write(b"too late")
            inner.link.close()
            assert await connection.recv() == b"x" * 100_000
            assert await connection.recv() == b"last words"
            assert await closed_with(connection) == CloseCode.NORMAL_CLOSURE
            await inner.wait_lost()
            assert inner.lost == [None]

    run(main())


def test_inner_close_ends_at_its_deadline_when_the_peer_does_not_answer(run):
    async def main():
        acceptor = Acceptor()
        async with serving(acceptor, close_timeout=0.2) as listening:
            _, writer = await raw(listening, REQUEST)
            inner = await acceptor.wait_made()
            inner.link.pause_reading()
            inner.link.close()
            await inner.wait_lost()
            writer.close()
            with contextlib.suppress(ConnectionResetError):
                await writer.wait_closed()

    run(main())


def test_inner_close_sees_the_answer_even_after_it_stopped_reading(run):
    async def main():
        acceptor = Acceptor()
        async with serving(acceptor, close_timeout=60.0) as listening, client(listening) as connection:
            inner = await acceptor.wait_made()
            inner.link.pause_reading()
            inner.link.close()
            assert await closed_with(connection) == CloseCode.NORMAL_CLOSURE
            await inner.wait_lost()

    run(main())


def test_ping_between_the_two_close_frames_is_stepped_over(run):
    async def main():
        acceptor = Acceptor()
        async with serving(acceptor, close_timeout=60.0) as listening:
            reader, writer = await raw(listening, REQUEST)
            inner = await acceptor.wait_made()
            inner.link.close()
            writer.write(masked(Opcode.PING, b"p") + masked(Opcode.BINARY, b"late"))
            writer.write(masked(Opcode.CLOSE, b"\x03\xe8"))
            async with asyncio.timeout(DEADLINE):
                await reader.read()
            writer.close()
            await inner.wait_lost()
            assert inner.received == b""

    run(main())


def test_close_frame_is_not_overtaken_by_a_reset_when_the_peer_keeps_sending(run):
    async def main():
        acceptor = Acceptor()
        async with serving(acceptor) as listening:
            reader, writer = await raw(listening, REQUEST)
            inner = await acceptor.wait_made()
            writer.write(masked(Opcode.TEXT, b"text") + masked(Opcode.BINARY, b"x" * 1_000_000) * 8)
            async with asyncio.timeout(DEADLINE):
                await writer.drain()
                await reader.readuntil(b"\r\n\r\n")
                answer = await reader.read()
            assert int.from_bytes(answer[2:4], "big") == CloseCode.UNSUPPORTED_DATA
            writer.close()
            await inner.wait_lost()
            assert inner.received == b""

    run(main())


def test_peer_close_ends_the_inner_connection_like_an_end_of_file(run):
    async def main():
        acceptor = Acceptor()
        async with serving(acceptor) as listening:
            async with client(listening) as connection:
                inner = await acceptor.wait_made()
                await connection.send(b"bye")
                await connection.close(1001)
                assert connection.close_code == 1001
            await inner.wait_lost()
            assert (inner.received, inner.eofs, inner.lost) == (b"bye", 1, [None])

    run(main())


def test_peer_that_ends_without_a_close_frame_ends_the_inner_connection(run):
    async def main():
        acceptor = Acceptor()
        async with serving(acceptor) as listening:
            _, writer = await raw(listening, REQUEST + masked(Opcode.BINARY, b"x"))
            inner = await acceptor.wait_made()
            await inner.wait_received(1)
            writer.close()
            await writer.wait_closed()
            await inner.wait_lost()
            assert inner.eofs <= 1

    run(main())


def test_inner_abort_cuts_the_connection_without_a_close_frame(run):
    async def main():
        acceptor = Acceptor()
        async with serving(acceptor) as listening, client(listening) as connection:
            inner = await acceptor.wait_made()
            inner.link.abort()
            assert await closed_with(connection) == CloseCode.ABNORMAL_CLOSURE
            await inner.wait_lost()

    run(main())


def test_inner_transport_tells_what_the_outer_one_knows_and_the_request(run):
    async def main():
        acceptor = Acceptor()
        async with serving(acceptor) as listening:
            headers = [("X-Token", "one"), ("X-Token", "two")]
            async with client(listening, "/mqtt?a=b", additional_headers=headers) as connection:
                link = (await acceptor.wait_made()).link
                assert link.get_extra_info("websocket") is True
                assert link.get_extra_info("http_path") == "/mqtt?a=b"
                assert link.get_extra_info("subprotocol") == "mqtt"
                assert link.get_extra_info("http_headers")["x-token"] == "one, two"
                assert link.get_extra_info("peername") == connection.local_address
                assert link.get_extra_info("nonsense", 7) == 7

    run(main())


def test_reader_that_stops_pauses_the_inner_writer_and_wakes_it_again(run):
    async def main():
        acceptor = Acceptor()
        async with serving(acceptor) as listening:
            reader, writer = await raw(listening, REQUEST)
            writer.transport.pause_reading()
            inner = await acceptor.wait_made()
            inner.link.set_write_buffer_limits(high=10_000, low=1000)
            total = 0
            async with asyncio.timeout(DEADLINE):
                while inner.writing_pauses == 0:
                    inner.link.write(b"x" * 60_000)
                    total += 60_000
                    await asyncio.sleep(0)
            assert inner.link.get_write_buffer_size() > 10_000
            # Pings while the peer does not read: only the last one is answered, after it reads again.
            for number in range(50):
                writer.write(masked(Opcode.PING, b"%03d" % number))
            writer.write(masked(Opcode.BINARY, b"pings sent"))
            await inner.wait_received(10)
            writer.transport.resume_reading()
            async with asyncio.timeout(DEADLINE):
                await reader.readuntil(b"\r\n\r\n")
                for _ in range(total // 60_000):
                    assert (await reader.readexactly(4))[:2] == b"\x82\x7e"
                    await reader.readexactly(60_000)
                assert await reader.readexactly(5) == b"\x8a\x03049"
            await inner.wait_until(lambda: inner.writing_resumes == inner.writing_pauses)
            writer.close()
            await inner.wait_lost()

    run(main())


def test_paused_reading_holds_the_peer_back_until_it_is_resumed(run):
    async def main():
        acceptor = Acceptor()
        async with serving(acceptor) as listening:
            _, writer = await raw(listening, REQUEST)
            inner = await acceptor.wait_made()
            inner.link.pause_reading()
            assert not inner.link.is_reading()
            writer.transport.set_write_buffer_limits(high=0)
            frame = masked(Opcode.BINARY, b"x" * 500_000)
            # 40 MB do not fit into the buffers of both kernels' ends, so the last drain has to wait.
            sending = asyncio.ensure_future(_send(writer, frame, 80))
            done, _ = await asyncio.wait([sending], timeout=0.3)
            assert not done
            assert inner.received == b""
            inner.link.resume_reading()
            await inner.wait_received(40_000_000)
            await sending
            writer.close()
            await inner.wait_lost()

    run(main())


async def _send(writer: asyncio.StreamWriter, data: bytes, times: int) -> None:
    for _ in range(times):
        writer.write(data)
        await writer.drain()


def test_long_write_becomes_frames_that_default_clients_accept(run):
    async def main():
        acceptor = Acceptor()
        async with serving(acceptor) as listening, client(listening) as connection:
            inner = await acceptor.wait_made()
            data = bytes(range(256)) * 4096 * 3
            inner.link.writelines([data[:100], memoryview(data)[100:]])
            received = b""
            async with asyncio.timeout(DEADLINE):
                while len(received) < len(data):
                    received += await connection.recv()
            assert received == data

    run(main())
