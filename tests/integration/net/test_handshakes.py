"""TLS listeners against clients that fail: who it was is logged, and nothing of them stays."""

import asyncio
import logging
import socket
import ssl
import struct
from pathlib import Path

import pytest

from tests.integration.net.peers import DEADLINE, Acceptor, Echo, wait_for
from tidegate.net.dial import dial
from tidegate.net.errors import DialError
from tidegate.net.listen import listen
from tidegate.net.tls import client_context, server_context
from tidegate.testing.certificates import Authority, make_authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return make_authority(tmp_path / "authority")


@pytest.fixture
def context(authority: Authority) -> ssl.SSLContext:
    issued = authority.issue("localhost")
    return server_context(issued.certificate, issued.key)


def warnings(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "tidegate.net.tls"]


@pytest.mark.parametrize(
    "greeting", [b"GET / HTTP/1.1\r\n\r\n", b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00"]
)
def test_a_client_that_does_not_speak_tls_is_logged_with_its_address(run, context, caplog, greeting: bytes):
    async def main():
        listening = await listen(Acceptor(), host="127.0.0.1", ssl=context)
        reader, writer = await asyncio.open_connection("127.0.0.1", listening.port)
        name = writer.get_extra_info("sockname")
        writer.write(greeting)
        await wait_for(lambda: listening.statistics().tls_failed == 1)
        try:
            await reader.read()
        except ConnectionResetError:
            pass  # it left what we wrote unread
        writer.close()
        listening.close()
        return f"{name[0]}:{name[1]}"

    peer = run(main())
    (record,) = warnings(caplog)
    assert (record.levelno, record.peer) == (logging.WARNING, peer)
    assert record.reason


def test_a_client_that_does_not_trust_us_is_logged_and_later_ones_are_counted(
    run, context, caplog, tmp_path: Path
):
    stranger = make_authority(tmp_path / "stranger")

    async def main():
        listening = await listen(Acceptor(), host="127.0.0.1", ssl=context)
        for _ in range(5):
            with pytest.raises(DialError):
                await dial(
                    listening.endpoints[0],
                    Echo,
                    ssl=client_context(stranger.certificate),
                    timeout=DEADLINE,
                )
        await wait_for(lambda: listening.statistics().tls_failed == 5)
        await wait_for(lambda: listening.statistics().tls_waiting == 0)
        listening.close()

    run(main())
    records = warnings(caplog)
    assert 1 <= len(records) < 5
    assert "trust" in records[0].reason


@pytest.mark.parametrize("is_polite", [True, False])
def test_a_port_check_is_no_failure(run, context, caplog, is_polite: bool):
    async def main():
        listening = await listen(Acceptor(), host="127.0.0.1", ssl=context)
        _, writer = await asyncio.open_connection("127.0.0.1", listening.port)
        await wait_for(lambda: listening.statistics().tls_waiting == 1)
        if not is_polite:
            linger = struct.pack("ii", 1, 0)  # the connection is reset, not closed
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.close()
        await wait_for(lambda: listening.statistics().tls_waiting == 0)
        assert listening.statistics().tls_failed == 0
        listening.close()

    run(main())
    assert warnings(caplog) == []


def test_a_silent_client_is_cut_off_and_logged(run, context, caplog):
    async def main():
        listening = await listen(Acceptor(), host="127.0.0.1", ssl=context, tls_handshake_timeout=0.1)
        reader, writer = await asyncio.open_connection("127.0.0.1", listening.port)
        assert await asyncio.wait_for(reader.read(), DEADLINE) == b""
        await wait_for(lambda: listening.statistics().tls_failed == 1)
        writer.close()
        listening.close()

    run(main())
    assert len(warnings(caplog)) == 1


def test_closing_the_listener_cuts_off_handshakes_and_keeps_finished_connections(run, context, authority):
    async def main():
        acceptor = Acceptor(Echo)
        listening = await listen(acceptor, host="127.0.0.1", ssl=context)
        endpoint = listening.endpoints[0]
        tls = client_context(authority.certificate)
        transport, protocol = await dial(endpoint, Echo, ssl=tls, timeout=DEADLINE)
        accepted = await acceptor.wait_made()
        reader, writer = await asyncio.open_connection("127.0.0.1", listening.port)
        await wait_for(lambda: listening.statistics().tls_waiting == 1)
        listening.close()
        assert await asyncio.wait_for(reader.read(), DEADLINE) == b""
        accepted.link.write(b"still here")
        await protocol.wait_received(10)
        writer.close()
        transport.abort()
        await accepted.wait_lost()

    run(main())


def test_tls_connections_know_their_peer_and_have_nodelay_set(run, context, authority):
    async def main():
        acceptor = Acceptor()
        listening = await listen(acceptor, host="127.0.0.1", ssl=context)
        tls = client_context(authority.certificate)
        transport, _ = await dial(listening.endpoints[0], Echo, ssl=tls, timeout=DEADLINE)
        accepted = await acceptor.wait_made()
        assert accepted.link.get_extra_info("peername") == transport.get_extra_info("sockname")
        assert accepted.link.get_extra_info("cipher")
        assert accepted.link.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        transport.abort()
        await accepted.wait_lost()
        listening.close()

    run(main())
