"""Servers that are silent, rude or wrong; and transports other than TCP."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.integration.client.servers import DEADLINE, Peer, cable, free_port, scripted, wait_until
from tidegate.broker.listener import Listener
from tidegate.client import (
    Client,
    ClientError,
    ConnectionLost,
    NotConnected,
    OperationTimeout,
    ServerDisconnected,
    ServerSilent,
)
from tidegate.mqtt import Disconnect, Pingreq, Pingresp, Property, Puback, Publish, ReasonCode
from tidegate.net.errors import DialError
from tidegate.net.tls import client_context, server_context
from tidegate.net.websocket import WebSocketOptions
from tidegate.testing import BrokerThread
from tidegate.testing.certificates import make_authority

Run = Callable[[Any], Any]


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    return request.param


def test_a_server_that_does_not_answer_pings_is_given_up(run: Run) -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        assert isinstance(await peer.receive(), Pingreq)
        await peer.wait_closed()

    async def main() -> None:
        async with (
            scripted(script) as port,
            Client(f"127.0.0.1:{port}", keep_alive=1, ping_timeout=0.2) as client,
        ):
            with pytest.raises(ServerSilent):
                await anext(client.messages)

    run(main())


def test_pings_keep_an_idle_connection_open_and_the_servers_interval_rules(run: Run) -> None:
    pings = 0

    async def script(peer: Peer) -> None:
        nonlocal pings
        await peer.accept(properties={Property.SERVER_KEEP_ALIVE: 1})
        while isinstance(await peer.receive(), Pingreq):
            pings += 1
            peer.send(Pingresp())

    async def main() -> None:
        async with scripted(script) as port, Client(f"127.0.0.1:{port}", keep_alive=600) as client:
            await wait_until(lambda: pings == 2)
            assert client.is_connected

    run(main())


def test_a_disconnect_of_the_server_reaches_everybody_with_its_reason(run: Run) -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.receive()
        peer.send(Disconnect(reason_code=0x9D, properties={Property.SERVER_REFERENCE: "elsewhere"}))

    async def main() -> None:
        async with scripted(script) as port, Client(f"127.0.0.1:{port}", max_redirects=0) as client:
            with pytest.raises(ServerDisconnected) as caught:
                await client.publish("t", qos=1)
            assert caught.value.reason_code == ReasonCode.SERVER_MOVED
            assert caught.value.server_reference == "elsewhere"

    run(main())


def test_a_server_that_breaks_the_protocol_is_told_why(run: Run) -> None:
    told: list[object] = []

    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.receive()
        peer.writer.write(b"\x36\x00")  # QoS 3
        told.append(await peer.receive())

    async def main() -> None:
        async with scripted(script) as port, Client(f"127.0.0.1:{port}") as client:
            await client.publish("t")
            with pytest.raises(ConnectionLost) as caught:
                await anext(client.messages)
            assert "broke the protocol" in str(caught.value)
            await wait_until(lambda: told)
        assert told == [Disconnect(reason_code=0x81)]

    run(main())


def test_a_server_that_never_answers_connect_is_left_at_the_deadline(run: Run) -> None:
    async def script(peer: Peer) -> None:
        await peer.wait_closed()

    async def main() -> None:
        async with scripted(script) as port:
            with pytest.raises(OperationTimeout):
                await Client(f"127.0.0.1:{port}", connect_timeout=0.2).connect()

    run(main())


def test_a_publish_without_answer_ends_at_its_deadline_and_its_late_answer_is_harmless(run: Run) -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        first = await peer.receive()
        second = await peer.receive()
        for packet in (first, second):
            assert isinstance(packet, Publish)
            peer.send(Puback(packet_identifier=packet.packet_identifier or 0))
        await peer.wait_closed()

    async def main() -> None:
        async with scripted(script) as port, Client(f"127.0.0.1:{port}") as client:
            with pytest.raises(OperationTimeout):
                await client.publish("t", "one", qos=1, timeout=0.05)
            await client.publish("t", "two", qos=1, timeout=DEADLINE)
            assert client.statistics()["publishes_open"] == 0

    run(main())


def test_a_flood_is_left_in_the_network_until_the_application_takes_it(run: Run) -> None:
    number, size = 20_000, 100
    payload = b"x" * 1000

    async def script(peer: Peer) -> None:
        await peer.accept()
        for index in range(number):
            peer.send(Publish(topic="t", payload=b"%6d" % index + payload))
            await peer.writer.drain()
        await peer.wait_closed()

    async def main() -> None:
        async with (
            scripted(script) as port,
            Client(f"127.0.0.1:{port}", receive_queue_size=size) as client,
        ):
            await wait_until(lambda: len(client.messages) >= size)
            async with asyncio.timeout(DEADLINE):
                for index in range(number):
                    message = await anext(client.messages)
                    assert int(message.payload[:6]) == index
                    # What one read of the transport can bring on top, 256 KiB.
                    assert len(client.messages) <= size + 270
            assert client.statistics()["messages_dropped"] == 0

    run(main())


def test_qos_0_that_does_not_fit_is_dropped_and_counted_only_while_an_answer_is_awaited(run: Run) -> None:
    size, late = 10, 500

    async def script(peer: Peer) -> None:
        await peer.accept()
        peer.send(*(Publish(topic="t", payload=b"early") for _ in range(size)))
        packet = await peer.receive()
        assert isinstance(packet, Publish)
        for _ in range(late):
            peer.send(Publish(topic="t", payload=b"late"))
            await peer.writer.drain()
        peer.send(Puback(packet_identifier=packet.packet_identifier or 0))
        await peer.wait_closed()

    async def main() -> None:
        async with (
            scripted(script) as port,
            Client(f"127.0.0.1:{port}", receive_queue_size=size) as client,
        ):
            await wait_until(lambda: len(client.messages) == size)
            assert client.statistics()["messages_dropped"] == 0
            await client.publish("t", qos=1, timeout=DEADLINE)
            assert client.statistics()["messages_dropped"] == late
            assert [client.messages.get_nowait().text for _ in range(size)] == ["early"] * size  # type: ignore[union-attr]

    run(main())


def test_sending_waits_for_a_server_that_does_not_read(run: Run) -> None:
    may_read = asyncio.Event()
    received = 0

    async def script(peer: Peer) -> None:
        nonlocal received
        await peer.accept()
        await may_read.wait()
        while True:
            await peer.receive()
            received += 1

    async def main() -> None:
        async with scripted(script) as port, Client(f"127.0.0.1:{port}") as client:
            sent = 0

            async def send_without_end() -> None:
                nonlocal sent
                while True:
                    await client.publish("t", bytes(10_000), timeout=0.3)
                    sent += 1

            with pytest.raises(OperationTimeout):
                await send_without_end()
            with pytest.raises(ClientError):
                client.publish_nowait("t")
            may_read.set()
            await client.publish("t", timeout=DEADLINE)
            await wait_until(lambda: received >= sent + 1)

    run(main())


def test_nobody_there_is_a_dial_error_with_a_hint(run: Run) -> None:
    async def main() -> None:
        with pytest.raises(DialError) as caught:
            await Client(f"127.0.0.1:{free_port()}").connect()
        assert caught.value.hint

    run(main())


def test_a_client_is_used_between_connecting_and_disconnecting(tidegate_broker: BrokerThread) -> None:
    async def main() -> None:
        client = Client(f"127.0.0.1:{tidegate_broker.port}")
        with pytest.raises(NotConnected):
            await client.publish("t")
        await client.connect()
        with pytest.raises(ClientError):
            await client.connect()
        await client.disconnect()
        await client.disconnect()
        with pytest.raises(NotConnected):
            await client.subscribe("t")
        with pytest.raises(StopAsyncIteration):
            await client.messages.__anext__()

    uvloop.run(main())


def test_disconnecting_says_goodbye_and_tells_those_who_wait(run: Run) -> None:
    heard: list[object] = []

    async def script(peer: Peer) -> None:
        await peer.accept()
        heard.append(await peer.receive())
        heard.append(await peer.receive())
        await peer.wait_closed()

    async def main() -> None:
        async with scripted(script) as port:
            client = Client(f"127.0.0.1:{port}")
            await client.connect()
            publishing = asyncio.ensure_future(client.publish("t", qos=1))
            await wait_until(lambda: heard)
            began = time.monotonic()
            await client.disconnect(0x04, session_expiry_interval=5)
            assert time.monotonic() - began < 4
            with pytest.raises(NotConnected):
                await publishing
            await wait_until(lambda: len(heard) == 2)
        assert heard[1] == Disconnect(reason_code=0x04, properties={Property.SESSION_EXPIRY_INTERVAL: 5})

    run(main())


@pytest.mark.parametrize("scheme", ["mqtts", "ws", "wss", "unix"])
def test_every_transport_carries_the_same(run: Run, scheme: str, tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    certificate, key = authority.issue("server")
    tls = server_context(certificate, key) if scheme in ("mqtts", "wss") else None
    websocket = WebSocketOptions() if scheme in ("ws", "wss") else None
    path = tmp_path / "broker.sock" if scheme == "unix" else None
    listener = Listener(port=0, tls=tls, websocket=websocket, unix_path=path)

    async def main(address: str) -> None:
        context = None
        if tls is not None:
            alpn = ("http/1.1",) if websocket else ("mqtt",)
            context = client_context(authority.certificate, alpn=alpn)
        async with Client(address, ssl=context) as client:
            await client.subscribe("t", qos=2)
            async with asyncio.timeout(DEADLINE), asyncio.TaskGroup() as group:
                for index in range(200):
                    group.create_task(client.publish("t", bytes([index]) * 3000, qos=index % 3))
                received = [(await anext(client.messages)).payload for _ in range(200)]
            assert sorted(received) == [bytes([index]) * 3000 for index in range(200)]

    with BrokerThread(listeners=[listener]) as broker:
        address = f"unix:{path}" if path else f"{scheme}://127.0.0.1:{broker.port}"
        if websocket:
            address += "/mqtt"
        run(main(address))


def test_many_filters_are_restored_in_several_packets(tidegate_broker: BrokerThread) -> None:
    names = [f"a/{index}" for index in range(120)]

    async def main() -> None:
        async with (
            cable(tidegate_broker.port) as line,
            Client(
                f"127.0.0.1:{line.port}", client_id="many", reconnect=True, reconnect_min_delay=0.01
            ) as client,
        ):
            await client.subscribe(*names, qos=1)
            line.cut()
            await wait_until(lambda: client.statistics()["reconnects"] == 1)
            for name in (names[0], names[-1]):
                await client.publish(name, qos=1)
                assert (await anext(client.messages)).topic == name

    uvloop.run(main())
