"""Three ways to get messages: the common iterator, a block of its own, a callback."""

import asyncio
from typing import Any

import pytest
import uvloop

from tests.integration.client.servers import DEADLINE, Peer, scripted, wait_until
from tidegate.client import Client, ConnectionLost, Message, SubscribeRefused
from tidegate.mqtt import Puback, Publish, Suback, Subscribe, Unsuback, Unsubscribe
from tidegate.testing import BrokerThread


def connect(port: int, **options: Any) -> Client:
    return Client(f"127.0.0.1:{port}", **options)


def test_a_block_gets_what_its_filters_match_and_the_rest_stays_common(port: int, version: int) -> None:
    async def main() -> None:
        async with asyncio.timeout(DEADLINE), connect(port, protocol_version=version) as client:
            await client.subscribe("#", qos=1)
            async with client.subscribed("a/+", ("b", 1), qos=1) as messages:
                for topic in ("a/1", "c", "b", "a/2"):
                    await client.publish(topic, topic, qos=1)
                assert {(await anext(messages)).text for _ in range(3)} >= {"a/1", "b"}
                assert (await anext(client.messages)).topic == "c"
            assert client.subscriptions == ["#"]
            await client.unsubscribe("#")
            await client.publish("a/3", "too late", qos=1)
            await client.subscribe("end", qos=1)
            await client.publish("end", qos=1)
            topics = {(await anext(client.messages)).topic}
            assert "a/3" not in topics

    uvloop.run(main())


def test_a_block_that_ends_while_the_connection_is_lost_is_unsubscribed_on_the_next() -> None:
    asked: list[list[str]] = []

    async def main() -> None:
        is_over = asyncio.Event()
        connections = 0

        async def script(peer: Peer) -> None:
            nonlocal connections
            connections += 1
            if connections == 1:
                await peer.accept()
                subscribe = await peer.receive()
                assert isinstance(subscribe, Subscribe)
                peer.send(Suback(packet_identifier=subscribe.packet_identifier, reason_codes=[0]))
                return
            await is_over.wait()
            await peer.accept(session_present=True)
            unsubscribe = await peer.receive()
            assert isinstance(unsubscribe, Unsubscribe)
            asked.append(unsubscribe.topic_filters)
            peer.send(Unsuback(packet_identifier=unsubscribe.packet_identifier, reason_codes=[0]))
            await peer.wait_closed()

        options: dict[str, Any] = {"reconnect": True, "reconnect_min_delay": 0.01, "client_id": "c"}
        async with (
            asyncio.timeout(DEADLINE),
            scripted(script) as port,
            connect(port, session_expiry_interval=60, **options) as client,
        ):
            async with client.subscribed("a"):
                await wait_until(lambda: not client.is_connected)
            is_over.set()
            await wait_until(lambda: bool(asked) and not client.subscriptions)

    uvloop.run(main())
    assert asked == [["a"]]


def test_what_a_block_did_not_take_holds_nothing_back(port: int) -> None:
    async def main() -> None:
        async with asyncio.timeout(DEADLINE), connect(port) as client:
            await client.subscribe("other", qos=1)
            async with client.subscribed("a", qos=1):
                for _ in range(10):
                    await client.publish("a", qos=1)
                await wait_until(lambda: client.statistics()["messages_waiting"] == 10)
            await client.publish("other", "x", qos=1)
            assert (await anext(client.messages)).text == "x"
            await wait_until(lambda: client.statistics()["acknowledgements_owed"] == 0)

    uvloop.run(main())


def test_an_inner_block_takes_from_an_outer_one(port: int) -> None:
    async def main() -> None:
        async with asyncio.timeout(DEADLINE), connect(port) as client, client.subscribed("a/#") as outer:
            async with client.subscribed("a/b") as inner:
                await client.publish("a/b", "inner", qos=1)
                assert (await anext(inner)).text == "inner"
            await client.publish("a/b", "outer", qos=1)
            while (message := await anext(outer)).text != "outer":
                assert message.text == "inner"  # A server may send a copy for each of two subscriptions.

    uvloop.run(main())


@pytest.mark.parametrize("is_async", [True, False])
def test_a_callback_gets_every_message_in_order_and_is_acknowledged_afterwards(
    port: int, version: int, is_async: bool
) -> None:
    number = 300
    seen: list[int] = []
    owed_during: list[int] = []

    async def main() -> None:
        async with connect(port, protocol_version=version) as client:

            def note(message: Message) -> None:
                seen.append(int(message.payload))
                assert not message.is_acknowledged
                owed_during.append(int(client.statistics()["acknowledgements_owed"]))

            async def note_later(message: Message) -> None:
                await asyncio.sleep(0)
                note(message)

            await client.subscribe("t", qos=1, callback=note_later if is_async else note)
            await asyncio.gather(*(client.publish("t", str(index), qos=1) for index in range(number)))
            await wait_until(lambda: len(seen) == number)
            await wait_until(lambda: client.statistics()["acknowledgements_owed"] == 0)
            assert len(client.messages) == 0
        assert seen == list(range(number))
        assert min(owed_during) >= 1

    uvloop.run(main())


def test_a_callback_of_a_shared_subscription_gets_its_messages(port: int) -> None:
    seen: list[str] = []

    async def main() -> None:
        async with connect(port) as client:
            await client.subscribe(
                "$share/g/jobs/+", qos=1, callback=lambda message: seen.append(message.text)
            )
            for index in range(5):
                await client.publish(f"jobs/{index}", str(index), qos=1)
            await wait_until(lambda: len(seen) == 5)

    uvloop.run(main())


def test_a_callback_that_fails_is_counted_and_the_next_message_comes(
    port: int, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    async def main() -> None:
        async with connect(port, protocol_version=version) as client:

            def fail_once(message: Message) -> None:
                seen.append(message.text)
                if len(seen) == 1:
                    raise ValueError("not this one")

            await client.subscribe("t", qos=1, callback=fail_once)
            await client.publish("t", "bad", qos=1)
            await client.publish("t", "good", qos=1)
            await wait_until(lambda: len(seen) == 2)
            await wait_until(lambda: client.statistics()["acknowledgements_owed"] == 0)
            assert client.statistics()["callback_errors"] == 1
            assert client.is_connected

    uvloop.run(main())
    assert "a callback failed" in caplog.text


def test_a_failed_callback_refuses_its_message() -> None:
    answers: list[Puback] = []

    async def script(peer: Peer) -> None:
        await peer.accept()
        packet = await peer.receive()
        assert isinstance(packet, Subscribe)
        peer.send(
            Suback(packet_identifier=packet.packet_identifier, reason_codes=[1]),
            Publish(topic="t", qos=1, packet_identifier=7),
        )
        answer = await peer.receive()
        assert isinstance(answer, Puback)
        answers.append(answer)
        await peer.wait_closed()

    async def main() -> None:
        async with scripted(script) as port, connect(port) as client:
            await client.subscribe("t", qos=1, callback=lambda message: message.json())
            await wait_until(lambda: answers)
        assert [(answer.packet_identifier, answer.reason_code) for answer in answers] == [(7, 0x83)]

    uvloop.run(main())


def test_a_client_may_be_disconnected_by_its_own_callback(port: int) -> None:
    async def main() -> None:
        async with asyncio.timeout(DEADLINE), connect(port) as client:

            async def leave(message: Message) -> None:
                await client.disconnect()

            await client.subscribe("t", callback=leave)
            await client.publish("t")
            await client.wait_closed()

    uvloop.run(main())


def test_waiting_for_the_end_raises_what_ended_the_connection() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()

    async def main() -> None:
        async with asyncio.timeout(DEADLINE), scripted(script) as port, connect(port) as client:
            with pytest.raises(ConnectionLost):
                await client.wait_closed()

    uvloop.run(main())


def test_a_refused_block_leaves_nothing_behind() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        while True:
            packet = await peer.receive()
            if isinstance(packet, Subscribe):
                peer.send(Suback(packet_identifier=packet.packet_identifier, reason_codes=[0x87]))
            elif isinstance(packet, Publish):
                peer.send(Publish(topic="a", payload=b"for the common queue"))

    async def main() -> None:
        async with asyncio.timeout(DEADLINE), scripted(script) as port, connect(port) as client:
            with pytest.raises(SubscribeRefused):
                async with client.subscribed("a", timeout=0.5):
                    raise AssertionError("it was refused")
            await client.publish("a")
            assert (await anext(client.messages)).topic == "a"

    uvloop.run(main())


def test_all_queues_together_keep_the_bound(tidegate_broker: BrokerThread) -> None:
    number, size = 500, 10

    async def main() -> None:
        async with (
            asyncio.timeout(DEADLINE),
            connect(tidegate_broker.port, receive_queue_size=size) as slow,
            connect(tidegate_broker.port) as fast,
            slow.subscribed("a", qos=1) as of_a,
            slow.subscribed("b", qos=1) as of_b,
        ):
            await asyncio.gather(
                *(fast.publish("ab"[index % 2], str(index), qos=1) for index in range(number))
            )
            received = []
            for _ in range(number // 2):
                for messages in (of_a, of_b):
                    received.append(int((await anext(messages)).payload))
                    assert len(of_a) + len(of_b) <= size
            assert received == list(range(number))

    uvloop.run(main())


def test_flush_returns_when_the_server_has_everything(port: int, version: int) -> None:
    async def main() -> None:
        async with connect(port, protocol_version=version) as client:
            futures = [client.publish_nowait("t", str(index), qos=1 + index % 2) for index in range(200)]
            await client.flush(DEADLINE)
            assert all(future.done() for future in futures)
            assert client.statistics()["publishes_open"] == 0
            await client.flush()

    uvloop.run(main())
