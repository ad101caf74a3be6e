"""Mistakes of applications, and of those they talk to: each has a clear answer, and leaves nothing behind."""

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.integration.client.servers import DEADLINE, Peer, scripted, wait_until
from tidegate.broker.listener import Listener
from tidegate.client import Client, ClientError, ConnectionLost, Message, OperationTimeout
from tidegate.errors import TidegateError
from tidegate.mqtt import Disconnect, Subscribe, Unsuback, Unsubscribe
from tidegate.net.tls import server_context
from tidegate.testing import BrokerThread
from tidegate.testing.certificates import make_authority

Mistake = Callable[[Client], Awaitable[Any]]

MISTAKES: dict[str, Mistake] = {
    "a number as payload": lambda client: client.publish("t", 5),  # type: ignore[arg-type]
    "None as payload": lambda client: client.publish("t", None, qos=1),  # type: ignore[arg-type]
    "a payload that is too large": lambda client: client.publish("t", bytes(2_000_000), qos=1),
    "QoS 3": lambda client: client.publish("t", qos=3),
    "a wildcard in a topic": lambda client: client.publish("a/#"),
    "an alias the server does not take": lambda client: client.publish("t", topic_alias=60_000),
    "a negative timeout": lambda client: client.publish("t", qos=1, timeout=-1),
    "a negative timeout of flush": lambda client: client.flush(timeout=-1),
    "no filter": lambda client: client.subscribe(),
    "no filter to unsubscribe": lambda client: client.unsubscribe(),
    "a bad filter": lambda client: client.subscribe("a/#/b"),
    "a bad filter to unsubscribe": lambda client: client.unsubscribe("a/#/b"),
    "a share without filter": lambda client: client.subscribe("$share/g"),
    "No Local of a shared subscription": lambda client: client.subscribe("$share/g/a", no_local=True),
    "a subscription with QoS 3": lambda client: client.subscribe("a", qos=3),
    "a callback that is none": lambda client: client.subscribe("a", callback=3),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_an_error_with_a_hint_and_changes_nothing(
    name: str, tidegate_broker: BrokerThread
) -> None:
    async def main() -> None:
        async with asyncio.timeout(DEADLINE), Client(f"127.0.0.1:{tidegate_broker.port}") as client:
            await client.subscribe("t", qos=1)
            with pytest.raises(TidegateError) as caught:
                await MISTAKES[name](client)
            assert caught.value.hint
            assert f"hint: {caught.value.hint}" in "".join(traceback.format_exception(caught.value))
            await client.publish("t", bytearray(b"still here"), qos=1)
            assert (await anext(client.messages)).text == "still here"
            assert client.subscriptions == ["t"]

    uvloop.run(main())


def test_a_subscription_that_cannot_be_starts_no_callback(tidegate_broker: BrokerThread) -> None:
    async def main() -> None:
        async with Client(f"127.0.0.1:{tidegate_broker.port}") as client:
            tasks = len(asyncio.all_tasks())
            for topics in ((), ("a/#/b",), ("$share/g/a",)):
                with pytest.raises(TidegateError):
                    await client.subscribe(*topics, callback=print, no_local=True)
            await wait_until(lambda: len(asyncio.all_tasks()) == tasks)

    uvloop.run(main())


def test_waiting_in_vain_leaves_nothing_behind(tidegate_broker: BrokerThread) -> None:
    async def main() -> None:
        async with Client(f"127.0.0.1:{tidegate_broker.port}") as client:
            for _ in range(50):
                for wait in (client.messages.__anext__, client.wait_closed):
                    with pytest.raises(TimeoutError):
                        async with asyncio.timeout(0):
                            await wait()
            connection = client._connection
            assert len(connection.routes.common._takers) == len(connection._end_waiters) == 0

    uvloop.run(main())


async def raise_error() -> None:
    raise ValueError("a fault")


async def meet_cancelled_error() -> None:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


@pytest.mark.parametrize("fail", [raise_error, meet_cancelled_error])
@pytest.mark.parametrize("manual_ack", [False, True])
def test_a_callback_that_fails_is_counted_and_holds_nothing_back(
    manual_ack: bool, fail: Callable[[], Awaitable[None]], tidegate_broker: BrokerThread
) -> None:
    seen: list[str] = []

    async def main() -> None:
        options: dict[str, Any] = {"manual_ack": manual_ack, "receive_maximum": 2}
        async with (
            asyncio.timeout(DEADLINE),
            Client(f"127.0.0.1:{tidegate_broker.port}", **options) as client,
        ):

            async def handle(message: Message) -> None:
                seen.append(message.text)
                if message.text == "1":
                    await fail()
                message.ack()

            await client.subscribe("t", qos=1, callback=handle)
            for number in range(10):
                await client.publish("t", str(number), qos=1)
            await wait_until(lambda: len(seen) == 10 and not client.statistics()["acknowledgements_owed"])
            assert client.statistics()["callback_errors"] == 1
            assert seen == [str(number) for number in range(10)]

    uvloop.run(main())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_server_that_says_goodbye_and_does_not_read_is_left_all_the_same(run: Any) -> None:
    connections = 0

    async def main() -> None:
        is_stuck = asyncio.Event()

        async def script(peer: Peer) -> None:
            nonlocal connections
            connections += 1
            await peer.accept()
            if connections == 1:
                await is_stuck.wait()
                peer.send(Disconnect(reason_code=0x8B))
            await asyncio.sleep(2 * DEADLINE)  # the test ends it

        async with (
            scripted(script) as port,
            Client(f"127.0.0.1:{port}", reconnect=True, reconnect_min_delay=0.01, keep_alive=0) as client,
        ):

            async def flood() -> None:
                while True:
                    await client.publish("t", bytes(100_000), timeout=0.3)

            with pytest.raises(OperationTimeout):
                await flood()
            is_stuck.set()
            await wait_until(lambda: connections == 2 and client.is_connected)

    run(main())


def test_a_request_that_gives_up_while_subscribing_ends_its_subscription() -> None:
    filters: list[str] = []

    async def script(peer: Peer) -> None:
        await peer.accept()
        subscribe = await peer.receive()
        assert isinstance(subscribe, Subscribe)
        filters.append(subscribe.subscriptions[0].topic_filter)
        unsubscribe = await peer.receive()
        assert isinstance(unsubscribe, Unsubscribe)
        peer.send(Unsuback(packet_identifier=unsubscribe.packet_identifier, reason_codes=[0]))
        filters.extend(unsubscribe.topic_filters)
        await peer.wait_closed()

    async def main() -> None:
        async with asyncio.timeout(DEADLINE), scripted(script) as port, Client(f"127.0.0.1:{port}") as client:
            with pytest.raises(OperationTimeout, match=r"the server took more than 0\.05 s"):
                await client.request("questions", timeout=0.05)
            await wait_until(lambda: len(filters) == 2)
            assert filters[0] == filters[1]

    uvloop.run(main())


def test_a_request_without_answer_blames_the_one_who_answers(tidegate_broker: BrokerThread) -> None:
    async def main() -> None:
        url = f"127.0.0.1:{tidegate_broker.port}"
        async with asyncio.timeout(DEADLINE), Client(url) as client, Client(url) as silent:
            await silent.subscribe("questions", qos=1)
            with pytest.raises(OperationTimeout) as caught:
                await client.request("questions", timeout=0.5)
            assert "server" not in f"{caught.value} {caught.value.hint}"
            with pytest.raises(ClientError):
                await client.request("questions", timeout=-1)

    uvloop.run(main())


def test_reports_that_were_asked_for_and_cannot_be_sent_are_said_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    connections = 0

    async def script(peer: Peer) -> None:
        nonlocal connections
        connections += 1
        await peer.accept()
        if connections > 1:
            await peer.wait_closed()

    async def main() -> None:
        async with (
            scripted(script) as port,
            Client(f"127.0.0.1:{port}", reports="ping", reconnect=True, reconnect_min_delay=0.01) as client,
        ):
            await wait_until(lambda: connections == 2 and client.is_connected)

    with caplog.at_level(logging.WARNING, "tidegate.client"):
        uvloop.run(main())
    assert len([record for record in caplog.records if "load reports" in record.message]) == 1


@pytest.mark.parametrize("answer", [b"", b"\x15\x03\x03\x00\x02\x02\x46"], ids=["none", "a TLS alert"])
def test_a_server_that_answers_connect_with_nothing_of_mqtt_may_want_tls(answer: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.receive()
        peer.writer.write(answer)
        peer.writer.close()

    async def main() -> None:
        async with scripted(script) as port:
            with pytest.raises(ConnectionLost) as caught:
                await Client(f"mqtt://127.0.0.1:{port}").connect()
            assert "mqtts://" in caught.value.hint

    uvloop.run(main())


def test_a_client_without_tls_at_a_tls_port_is_asked_about_it(tmp_path: Path) -> None:
    listener = Listener(
        host="127.0.0.1", port=0, tls=server_context(*make_authority(tmp_path).issue("server"))
    )
    with BrokerThread(listeners=[listener]) as broker, pytest.raises(ConnectionLost) as caught:
        uvloop.run(Client(f"mqtt://127.0.0.1:{broker.port}").connect())
    assert "TLS port" in caught.value.hint
