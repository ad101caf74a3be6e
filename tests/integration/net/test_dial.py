"""Dialers against our own listeners, the `websockets` library's server, and sockets that misbehave."""

import asyncio
import contextlib
import ssl
from pathlib import Path

import pytest
from websockets.asyncio.server import serve

from tests.integration.net.peers import DEADLINE, Acceptor, Echo, Recorder, raw_server
from tidegate.net.addresses import Endpoint, parse_address
from tidegate.net.dial import dial
from tidegate.net.errors import DialError, WebSocketRefused
from tidegate.net.listen import listen
from tidegate.net.tls import client_context, server_context
from tidegate.net.websocket import WebSocketOptions
from tidegate.testing.certificates import Authority, make_authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server_tls(authority: Authority) -> ssl.SSLContext:
    return server_context(*authority.issue("server"), client_ca=authority.certificate, alpn=["mqtt"])


async def _finish(*ends: Recorder) -> None:
    for end in ends:
        end.link.close()
    for end in ends:
        await end.wait_lost()


@pytest.mark.parametrize("websocket", [None, WebSocketOptions()], ids=["plain", "websocket"])
@pytest.mark.parametrize("tls", [False, True], ids=["tcp", "tls"])
def test_dialer_and_listener_exchange_a_megabyte_both_ways(run, authority, server_tls, tls, websocket):
    async def main():
        acceptor = Acceptor(Echo)
        listening = await listen(
            acceptor, host="127.0.0.1", ssl=server_tls if tls else None, websocket=websocket
        )
        transport, protocol = await dial(
            listening.endpoints[0], Recorder, ssl=client_context(authority.certificate), timeout=DEADLINE
        )
        assert protocol.transport is transport
        data = bytes(range(256)) * 4096
        for start in range(0, len(data), 100_000):
            transport.write(data[start : start + 100_000])
        await protocol.wait_received(len(data))
        assert protocol.received == data
        assert bool(transport.get_extra_info("websocket")) == (websocket is not None)
        assert (transport.get_extra_info("ssl_object") is not None) == tls
        await _finish(protocol, acceptor.made[0])
        listening.close()

    run(main())


def test_unix_socket_is_dialled_by_its_path(run, tmp_path: Path):
    async def main():
        acceptor = Acceptor(Echo)
        listening = await listen(acceptor, unix_path=tmp_path / "s")
        transport, protocol = await dial(listening.endpoints[0], Recorder, timeout=DEADLINE)
        transport.write(b"x")
        await protocol.wait_received(1)
        await _finish(protocol, acceptor.made[0])
        listening.close()

    run(main())


def test_mqtt_is_agreed_by_alpn_and_the_client_certificate_reaches_the_server(run, authority, server_tls):
    async def main():
        acceptor = Acceptor()
        listening = await listen(acceptor, host="127.0.0.1", ssl=server_tls)
        context = client_context(authority.certificate, *authority.issue("device-7"))
        transport, protocol = await dial(listening.endpoints[0], Recorder, ssl=context, timeout=DEADLINE)
        assert transport.get_extra_info("ssl_object").selected_alpn_protocol() == "mqtt"
        accepted = await acceptor.wait_made()
        subject = accepted.link.get_extra_info("peercert")["subject"]
        assert subject == ((("commonName", "device-7"),),)
        await _finish(protocol, accepted)
        listening.close()

    run(main())


def test_peer_certificate_is_seen_through_a_websocket(run, authority, server_tls):
    async def main():
        acceptor = Acceptor()
        listening = await listen(acceptor, host="127.0.0.1", ssl=server_tls, websocket=WebSocketOptions())
        context = client_context(authority.certificate, *authority.issue("device-8"))
        _, protocol = await dial(listening.endpoints[0], Recorder, ssl=context, timeout=DEADLINE)
        accepted = await acceptor.wait_made()
        subject = accepted.link.get_extra_info("peercert")["subject"]
        assert subject == ((("commonName", "device-8"),),)
        assert accepted.link.get_extra_info("sslcontext") is server_tls
        await _finish(protocol, accepted)
        listening.close()

    run(main())


def test_server_certificate_that_is_not_trusted_is_refused(run, authority, server_tls, tmp_path):
    async def main():
        listening = await listen(Acceptor(), host="127.0.0.1", ssl=server_tls)
        stranger = make_authority(tmp_path)
        with pytest.raises(DialError) as caught:
            await dial(
                listening.endpoints[0], Recorder, ssl=client_context(stranger.certificate), timeout=DEADLINE
            )
        assert isinstance(caught.value.__cause__, ssl.SSLCertVerificationError)
        assert "ca_file" in caught.value.hint
        with pytest.raises(DialError):
            await dial(listening.endpoints[0], Recorder, timeout=DEADLINE)
        listening.close()

    run(main())


def test_expired_or_misnamed_server_certificate_is_refused(run, authority):
    async def main():
        for issued in (
            authority.issue("expired", valid_days=-1),
            authority.issue("misnamed", hosts=["other.example"]),
        ):
            listening = await listen(Acceptor(), host="127.0.0.1", ssl=server_context(*issued))
            context = client_context(authority.certificate)
            with pytest.raises(DialError) as caught:
                await dial(listening.endpoints[0], Recorder, ssl=context, timeout=DEADLINE)
            assert isinstance(caught.value.__cause__, ssl.SSLCertVerificationError)
            listening.close()

    run(main())


def test_client_without_a_certificate_never_reaches_a_listener_that_requires_one(run, authority):
    async def main():
        acceptor = Acceptor()
        context = server_context(
            *authority.issue("strict"), client_ca=authority.certificate, require_client_certificate=True
        )
        listening = await listen(acceptor, host="127.0.0.1", ssl=context)
        # With TLS 1.3 the client learns of it only after its own handshake is complete.
        with contextlib.suppress(DialError):
            _, protocol = await dial(
                listening.endpoints[0],
                Recorder,
                ssl=client_context(authority.certificate),
                timeout=DEADLINE,
            )
            await protocol.wait_lost()
        assert all(made.transport is None for made in acceptor.made)
        listening.close()

    run(main())


def test_slow_tls_handshake_is_cut_off(run, server_tls):
    async def main():
        acceptor = Acceptor()
        listening = await listen(acceptor, host="127.0.0.1", ssl=server_tls, tls_handshake_timeout=0.2)
        probe = Recorder()
        await asyncio.get_running_loop().create_connection(lambda: probe, "127.0.0.1", listening.port)
        await probe.wait_lost()
        assert all(made.transport is None for made in acceptor.made)
        listening.close()

    run(main())


def test_plain_client_on_a_tls_port_times_out_or_is_cut_off_with_a_dial_error(run):
    async def main():
        acceptor = Acceptor()
        listening = await listen(acceptor, host="127.0.0.1")
        endpoint = Endpoint(scheme="mqtts", host="127.0.0.1", port=listening.port, tls=True)
        with pytest.raises(DialError) as caught:
            await dial(endpoint, Recorder, ssl=client_context(insecure=True), timeout=0.2)
        assert caught.value.timed_out
        for made in acceptor.made:
            await made.wait_lost()
        listening.close()

    run(main())


@pytest.mark.parametrize("scheme", ["mqtt", "ws"])
def test_port_without_a_listener_gives_a_dial_error(run, scheme: str):
    async def main():
        listening = await listen(Acceptor(), host="127.0.0.1")
        listening.close()
        with pytest.raises(DialError) as caught:
            await dial(parse_address(f"{scheme}://127.0.0.1:{listening.port}"), Recorder, timeout=DEADLINE)
        assert not caught.value.timed_out
        assert caught.value.hint

    run(main())


def test_missing_unix_socket_and_unknown_host_give_dial_errors(run, tmp_path: Path):
    async def main():
        for address in (f"unix:{tmp_path}/missing", "mqtt://no-such-host.invalid"):
            with pytest.raises(DialError) as caught:
                await dial(parse_address(address), Recorder, timeout=DEADLINE)
            assert caught.value.address == str(parse_address(address))

    run(main())


@pytest.mark.parametrize("path, status", [("/wrong", 404), ("/mqtt", 403)])
def test_refused_upgrade_carries_the_status(run, path: str, status: int):
    async def main():
        acceptor = Acceptor()
        options = WebSocketOptions(origins=("https://good.example",), close_timeout=0.5)
        listening = await listen(acceptor, host="127.0.0.1", websocket=options)
        endpoint = parse_address(f"ws://127.0.0.1:{listening.port}{path}")
        with pytest.raises(WebSocketRefused) as caught:
            await dial(endpoint, Recorder, timeout=DEADLINE, headers={"Origin": "https://evil.example"})
        assert caught.value.status == status
        assert caught.value.hint
        assert not acceptor.made
        listening.close()

    run(main())


@pytest.mark.parametrize(
    "answer, status",
    [
        (b"\x20\x02\x00\x01", None),
        (b"SSH-2.0-x\r\n", None),
        (b"", None),
        (b"HTTP/1.1 503 Busy\r\nConnection: close\r\n\r\ncome back later", 503),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200),
    ],
)
def test_server_that_is_no_websocket_is_refused(run, answer: bytes, status: int | None):
    async def main():
        async def misbehave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)

        async with raw_server(misbehave) as port:
            with pytest.raises(WebSocketRefused) as caught:
                await dial(parse_address(f"ws://127.0.0.1:{port}"), Recorder, timeout=DEADLINE)
            assert caught.value.status == status

    run(main())


def test_status_of_a_refusal_survives_a_body_that_comes_later(run):
    async def main():
        head_is_seen = asyncio.Event()

        async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 8\r\n\r\nlog")
            await head_is_seen.wait()
            writer.write(b" in\r\n")
            await reader.read()

        async with raw_server(refuse) as port:
            # The rest is sent when the client has certainly waited a while for it.
            asyncio.get_running_loop().call_later(0.1, head_is_seen.set)
            with pytest.raises(WebSocketRefused) as caught:
                await dial(parse_address(f"ws://127.0.0.1:{port}"), Recorder, timeout=DEADLINE)
            assert caught.value.status == 401

    run(main())


def test_silent_websocket_server_times_out_and_is_let_go(run):
    async def main():
        acceptor = Acceptor()
        listening = await listen(acceptor, host="127.0.0.1")
        with pytest.raises(DialError) as caught:
            await dial(parse_address(f"ws://127.0.0.1:{listening.port}"), Recorder, timeout=0.2)
        assert caught.value.timed_out
        await acceptor.made[0].wait_lost()
        listening.close()

    run(main())


def test_server_that_does_not_select_mqtt_is_refused(run):
    async def main():
        async with serve(_drain, "127.0.0.1", 0, select_subprotocol=lambda *_: None) as server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(WebSocketRefused) as caught:
                await dial(parse_address(f"ws://127.0.0.1:{port}"), Recorder, timeout=DEADLINE)
            assert caught.value.status == 101

    run(main())


async def _drain(connection) -> None:
    async for _ in connection:
        pass


async def _echo(connection) -> None:
    async for message in connection:
        await connection.send(message)


def test_client_speaks_with_another_implementation_and_closes_cleanly(run):
    async def main():
        codes = []

        async def handler(connection) -> None:
            assert connection.request.headers["X-Token"] == "t"
            await _echo(connection)
            codes.append(connection.close_code)

        async with serve(handler, "127.0.0.1", 0, subprotocols=["mqtt"], compression=None) as server:
            port = server.sockets[0].getsockname()[1]
            endpoint = parse_address(f"ws://127.0.0.1:{port}/x?y=z")
            transport, protocol = await dial(endpoint, Recorder, timeout=DEADLINE, headers={"X-Token": "t"})
            data = b"0123456789" * 150_000
            transport.write(data)
            await protocol.wait_received(len(data))
            assert protocol.received == data
            transport.close()
            transport.write(b"too late")
            await protocol.wait_lost()
            assert protocol.lost == [None]
        assert codes == [1000]

    run(main())


def test_client_ends_when_the_server_closes_or_sends_text(run):
    async def main():
        async def close(connection) -> None:
            await connection.send(b"bye")
            await connection.close(1001)

        async def text(connection) -> None:
            await connection.send("text")
            await connection.wait_closed()

        for handler, received in ((close, b"bye"), (text, b"")):
            async with serve(handler, "127.0.0.1", 0, subprotocols=["mqtt"]) as server:
                port = server.sockets[0].getsockname()[1]
                _, protocol = await dial(parse_address(f"ws://127.0.0.1:{port}"), Recorder, timeout=DEADLINE)
                await protocol.wait_lost()
                assert protocol.received == received

    run(main())
