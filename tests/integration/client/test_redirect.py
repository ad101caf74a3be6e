"""The client follows a server that names another one."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from tests.integration.client.servers import DEADLINE, Peer, free_port, scripted
from tidegate.client import Client, ConnectRefused, Property, ServerDisconnected, TooManyRedirects
from tidegate.mqtt import Connack, Connect, Disconnect, Puback, Publish, ReasonCode
from tidegate.net.errors import DialError
from tidegate.testing import BrokerThread

Script = Callable[[Peer], Awaitable[None]]


def refuse(reference: Callable[[], str], reason_code: int = 0x9C) -> Script:
    async def script(peer: Peer) -> None:
        await peer.accept(reason_code=reason_code, properties={Property.SERVER_REFERENCE: reference()})

    return script


def send_away(reference: Callable[[], str], seen: list[Publish]) -> Script:
    """Accepts a client, and sends it away instead of acknowledging its first message."""

    async def script(peer: Peer) -> None:
        await peer.accept()
        packet = await peer.receive()
        assert isinstance(packet, Publish)
        seen.append(packet)
        peer.send(Disconnect(reason_code=0x9C, properties={Property.SERVER_REFERENCE: reference()}))
        await peer.wait_closed()

    return script


@pytest.mark.parametrize("reason_code", [0x9C, 0x9D])
def test_a_refusal_that_names_a_server_leads_there(tidegate_broker: BrokerThread, reason_code: int) -> None:
    reference = f"127.0.0.1:{tidegate_broker.port}"

    async def main() -> None:
        async with (
            scripted(refuse(lambda: reference, reason_code)) as port,
            Client(f"127.0.0.1:{port}") as client,
        ):
            await client.subscribe("t", qos=1)
            await client.publish("t", "there", qos=1)
            async with asyncio.timeout(DEADLINE):
                assert (await anext(client.messages)).text == "there"

    uvloop.run(main())


def test_a_disconnect_that_names_a_server_takes_open_publishes_along(tidegate_broker: BrokerThread) -> None:
    seen: list[Publish] = []

    async def main() -> None:
        async with (
            scripted(send_away(lambda: f"127.0.0.1:{tidegate_broker.port}", seen)) as port,
            Client(f"127.0.0.1:{tidegate_broker.port}") as other,
            Client(f"127.0.0.1:{port}") as client,
        ):
            await other.subscribe("t", qos=1)
            await client.publish("t", "moved", qos=1)
            async with asyncio.timeout(DEADLINE):
                assert (await anext(other.messages)).text == "moved"
            assert [packet.payload for packet in seen] == [b"moved"]
            assert client.is_connected

    uvloop.run(main())


def test_servers_that_send_each_other_the_client_are_left_after_some_hops() -> None:
    ports: list[int] = []
    hops = 0

    def next_port() -> str:
        nonlocal hops
        hops += 1
        return f"127.0.0.1:{ports[hops % 2]}"

    async def main() -> None:
        async with scripted(refuse(next_port)) as first, scripted(refuse(next_port)) as second:
            ports.extend((first, second))
            with pytest.raises(TooManyRedirects) as caught:
                await Client(f"127.0.0.1:{first}", max_redirects=4).connect()
            assert hops == 5
            assert len(caught.value.path) == 6

    uvloop.run(main())


def test_a_circle_of_servers_that_accept_first_is_noticed_too() -> None:
    ports: list[int] = []
    seen: list[Publish] = []

    def script(index: int) -> Script:
        return send_away(lambda: f"127.0.0.1:{ports[index]}", seen)

    async def main() -> None:
        async with scripted(script(1)) as first, scripted(script(0)) as second:
            ports.extend((first, second))
            async with Client(f"127.0.0.1:{first}", max_redirects=3) as client:
                with pytest.raises(TooManyRedirects):
                    await client.publish("t", qos=1)
        assert len(seen) == 4

    uvloop.run(main())


def test_a_temporary_server_that_does_not_answer_is_asked_for_again_at_home() -> None:
    connects: list[Connect] = []
    dead = free_port()

    async def script(peer: Peer) -> None:
        if not connects:
            packet = await peer.accept(
                reason_code=0x9C, properties={Property.SERVER_REFERENCE: f"127.0.0.1:{dead}"}
            )
        else:
            packet = await peer.accept()
        assert isinstance(packet, Connect)
        connects.append(packet)
        if len(connects) == 1:
            return
        packet = await peer.receive()
        assert isinstance(packet, Publish)
        if len(connects) == 2:
            properties = {Property.SERVER_REFERENCE: f"127.0.0.1:{dead}"}
            peer.send(Disconnect(reason_code=0x9C, properties=properties))
            return
        peer.send(Puback(packet_identifier=packet.packet_identifier or 0))
        await peer.wait_closed()

    async def main() -> None:
        options: dict[str, Any] = {"reconnect": True, "reconnect_min_delay": 0.01, "reconnect_max_delay": 0.1}
        async with scripted(script) as port:
            with pytest.raises(DialError):  # The first connection is never retried.
                await Client(f"127.0.0.1:{port}", **options).connect()
            async with Client(f"127.0.0.1:{port}", **options) as client:
                await client.publish("t", qos=1, timeout=DEADLINE)
        assert len(connects) == 3

    uvloop.run(main())


def test_after_a_loss_the_client_returns_home_unless_the_server_has_moved_for_good() -> None:
    visits: list[str] = []

    def main_script(code: int, reference: Callable[[], str]) -> Script:
        async def script(peer: Peer) -> None:
            visits.append("home")
            await peer.accept(reason_code=code, properties={Property.SERVER_REFERENCE: reference()})

        return script

    async def elsewhere(peer: Peer) -> None:
        visits.append("elsewhere")
        await peer.accept()
        packet = await peer.receive()
        assert isinstance(packet, Publish)
        if visits.count("elsewhere") == 1:
            return
        peer.send(Puback(packet_identifier=packet.packet_identifier or 0))
        await peer.wait_closed()

    async def main(code: int) -> list[str]:
        visits.clear()
        options: dict[str, Any] = {"reconnect": True, "reconnect_min_delay": 0.01}
        async with (
            scripted(elsewhere) as there,
            scripted(main_script(code, lambda: f"127.0.0.1:{there}")) as home,
            Client(f"127.0.0.1:{home}", **options) as client,
        ):
            await client.publish("t", qos=1, timeout=DEADLINE)
        return list(visits)

    assert uvloop.run(main(0x9C)) == ["home", "elsewhere", "home", "elsewhere"]
    assert uvloop.run(main(0x9D)) == ["home", "elsewhere", "elsewhere"]


def test_being_sent_away_right_after_being_accepted_is_followed(tidegate_broker: BrokerThread) -> None:
    async def script(peer: Peer) -> None:
        await peer.receive()
        properties = {Property.SERVER_REFERENCE: f"127.0.0.1:{tidegate_broker.port}"}
        peer.send(Connack(), Disconnect(reason_code=0x9C, properties=properties))

    async def main() -> None:
        async with scripted(script) as port, Client(f"127.0.0.1:{port}") as client:
            await client.publish("t", qos=1)
            assert client.is_connected

    uvloop.run(main())


@pytest.mark.parametrize("reference", ["", ":x", "mqtt://"])
def test_a_refusal_without_a_usable_reference_is_an_error(reference: str) -> None:
    async def main() -> None:
        async with scripted(refuse(lambda: reference)) as port:
            with pytest.raises(ConnectRefused) as caught:
                await Client(f"127.0.0.1:{port}").connect()
            assert caught.value.reason_code == ReasonCode.USE_ANOTHER_SERVER

    uvloop.run(main())


def test_a_client_that_does_not_follow_learns_the_reference() -> None:
    seen: list[Publish] = []

    async def main() -> None:
        async with (
            scripted(send_away(lambda: "elsewhere:1", seen)) as port,
            Client(f"127.0.0.1:{port}", max_redirects=0) as client,
        ):
            with pytest.raises(ServerDisconnected) as caught:
                await client.publish("t", qos=1)
            assert caught.value.server_reference == "elsewhere:1"

    uvloop.run(main())
