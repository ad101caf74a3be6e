"""A connection that is cut again and again: what was promised still holds."""

import asyncio
from typing import Any

import pytest
import uvloop

from tests.integration.client.servers import DEADLINE, Peer, cable, scripted, wait_until
from tidegate.client import Client, ConnectionLost, ConnectRefused, SessionLost
from tidegate.mqtt import Connect, Puback, Publish, ReasonCode, Suback, Subscribe

QUICK: dict[str, Any] = {"reconnect": True, "reconnect_min_delay": 0.01, "reconnect_max_delay": 0.05}


def client_was_cut(client: Client) -> bool:
    # Not once a cut: one may hit a connection that is just being made.
    return int(client.statistics()["reconnects"]) >= 1


@pytest.mark.parametrize("qos", [1, 2])
def test_cuts_lose_nothing_and_double_nothing_that_must_not_be(port: int, qos: int) -> None:
    number, cuts = 400, 5
    options: dict[str, Any] = {"session_expiry_interval": 600, **QUICK}

    async def main() -> None:
        async with (
            cable(port) as line,
            Client(f"127.0.0.1:{line.port}", client_id="from", **options) as source,
            Client(f"127.0.0.1:{line.port}", client_id="to", receive_queue_size=50, **options) as target,
        ):
            await target.subscribe("t", qos=qos)
            received: list[int] = []

            async def publish() -> None:
                for start in range(0, number, 20):
                    numbers = range(start, start + 20)
                    await asyncio.gather(*(source.publish("t", str(index), qos=qos) for index in numbers))

            async def receive() -> None:
                async for message in target.messages:
                    received.append(int(message.payload))
                    if len(set(received)) == number:
                        return

            async def cut() -> None:
                for done in range(1, cuts + 1):
                    await wait_until(lambda done=done: len(received) > done * number // (cuts + 2))
                    line.cut()

            async with asyncio.timeout(60), asyncio.TaskGroup() as group:
                group.create_task(publish())
                group.create_task(receive())
                group.create_task(cut())
            assert set(received) == set(range(number))
            if qos == 2:
                assert received == sorted(received)
                assert len(received) == number
            assert client_was_cut(source)
            assert client_was_cut(target)
            assert target.statistics()["messages_dropped"] == 0

    uvloop.run(main())


def test_subscriptions_come_back_in_a_new_session(port: int, version: int) -> None:
    async def main() -> None:
        async with (
            cable(port) as line,
            Client(f"127.0.0.1:{line.port}", protocol_version=version, client_id="c", **QUICK) as client,
        ):
            await client.subscribe("a/#", ("b", 1))
            line.cut()
            await wait_until(lambda: client.statistics()["reconnects"] == 1)
            async with asyncio.timeout(DEADLINE):
                await client.publish("a/x", "1", qos=1)
                await client.publish("b", "2", qos=1)
                assert [(await anext(client.messages)).text for _ in range(2)] == ["1", "2"]

    uvloop.run(main())


def test_requests_still_work_after_a_cut(port: int) -> None:
    async def main() -> None:
        async with cable(port) as line, Client(f"127.0.0.1:{line.port}", **QUICK) as client:
            await client.subscribe("echo", qos=1)

            async def echo() -> None:
                for _ in range(2):
                    request = await anext(client.messages)
                    await client.respond(request, request.payload)

            async with asyncio.TaskGroup() as group:
                group.create_task(echo())
                assert (await client.request("echo", "1", timeout=DEADLINE)).text == "1"
                line.cut()
                await wait_until(lambda: client.statistics()["reconnects"] == 1)
                assert (await client.request("echo", "2", timeout=DEADLINE)).text == "2"

    uvloop.run(main())


def test_without_reconnect_everybody_learns_of_the_loss() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        while not isinstance(await peer.receive(), Publish):
            pass
        peer.writer.transport.abort()

    async def main() -> None:
        async with scripted(script) as port, Client(f"127.0.0.1:{port}") as client:
            results = await asyncio.gather(
                client.subscribe("a"),
                client.publish("t", qos=1),
                anext(client.messages),
                return_exceptions=True,
            )
            assert [type(result) for result in results] == [ConnectionLost] * 3
            with pytest.raises(ConnectionLost):
                await client.publish("t")

    uvloop.run(main())


def test_a_client_that_is_no_longer_welcome_gives_up() -> None:
    connects: list[Connect] = []

    async def script(peer: Peer) -> None:
        packet = await peer.accept(reason_code=0x87 if connects else 0)
        assert isinstance(packet, Connect)
        connects.append(packet)
        if len(connects) == 1:
            await peer.receive()

    async def main() -> None:
        async with scripted(script) as port, Client(f"127.0.0.1:{port}", client_id="c", **QUICK) as client:
            with pytest.raises(ConnectRefused) as caught:
                await client.publish("t", qos=1)
            assert caught.value.reason_code == ReasonCode.NOT_AUTHORIZED
            with pytest.raises(ConnectRefused):
                await anext(client.messages)
        assert [connect.clean_start for connect in connects] == [True, False]

    uvloop.run(main())


def test_a_lost_session_is_told_to_those_whose_qos_2_message_was_open() -> None:
    connects = 0

    async def script(peer: Peer) -> None:
        nonlocal connects
        connects += 1
        await peer.accept()
        packet = await peer.receive()
        assert isinstance(packet, Publish)
        if connects == 1:
            await peer.receive()
            return
        assert (packet.payload, packet.dup) == (b"one", False)
        peer.send(Puback(packet_identifier=packet.packet_identifier or 0))
        await peer.wait_closed()

    async def main() -> None:
        async with scripted(script) as port, Client(f"127.0.0.1:{port}", **QUICK) as client:
            one, two = await asyncio.gather(
                client.publish("t", "one", qos=1), client.publish("t", "two", qos=2), return_exceptions=True
            )
            assert not isinstance(one, BaseException)
            assert isinstance(two, SessionLost)

    uvloop.run(main())


def test_calls_wait_while_the_server_is_away_and_disconnecting_ends_the_attempts() -> None:
    accepted = 0

    async def script(peer: Peer) -> None:
        nonlocal accepted
        accepted += 1
        if accepted in (2, 3):
            return
        await peer.accept()
        if accepted == 1:
            return
        packet = await peer.receive()
        assert isinstance(packet, Subscribe)
        peer.send(Suback(packet_identifier=packet.packet_identifier, reason_codes=[0]))
        await peer.wait_closed()

    async def main() -> None:
        async with scripted(script) as port:
            async with Client(f"127.0.0.1:{port}", **QUICK) as client:
                await wait_until(lambda: not client.is_connected)
                assert await client.subscribe("a", timeout=DEADLINE) == [0]
                await client.publish("t", timeout=DEADLINE)
            assert accepted == 4
        client = Client(f"127.0.0.1:{port}", **QUICK)
        assert not client.is_connected

    uvloop.run(main())


def test_disconnecting_while_away_ends_at_once() -> None:
    accepted = 0

    async def script(peer: Peer) -> None:
        nonlocal accepted
        accepted += 1
        if accepted == 1:
            await peer.accept()

    async def main() -> None:
        async with scripted(script) as port:
            client = Client(f"127.0.0.1:{port}", reconnect=True, reconnect_min_delay=60)
            await client.connect()
            await wait_until(lambda: not client.is_connected)
            waiting = asyncio.create_task(anext(client.messages))
            async with asyncio.timeout(DEADLINE):
                await client.disconnect()
                with pytest.raises(StopAsyncIteration):
                    await client.messages.__anext__()
                await asyncio.wait([waiting])
            assert accepted == 1

    uvloop.run(main())
