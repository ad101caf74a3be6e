"""The client against real brokers, ours and Mosquitto."""

import asyncio
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.integration.client.servers import DEADLINE, mosquitto, wait_until
from tidegate.client import (
    Client,
    ConnectionLost,
    ConnectRefused,
    Message,
    NoResponder,
    NotSupported,
    OperationTimeout,
    Property,
    ServerDisconnected,
    Subscription,
    Will,
)
from tidegate.mqtt import ReasonCode
from tidegate.testing import BrokerThread


def connect(port: int, **options: Any) -> Client:
    return Client(f"127.0.0.1:{port}", **options)


async def take(client: Client, number: int = 1) -> list[Message]:
    async with asyncio.timeout(DEADLINE):
        return [await anext(client.messages) for _ in range(number)]


def test_a_message_of_each_qos_arrives(port: int, version: int) -> None:
    async def main() -> None:
        async with connect(port, protocol_version=version) as client:
            assert await client.subscribe("a/+", qos=2) == [2]
            for qos in (0, 1, 2):
                await client.publish("a/b", f"qos {qos}", qos=qos)
            messages = await take(client, 3)
            assert [(message.topic, message.text, message.qos) for message in messages] == [
                ("a/b", f"qos {qos}", qos) for qos in (0, 1, 2)
            ]
            await wait_until(lambda: client.statistics()["acknowledgements_owed"] == 0)

    uvloop.run(main())


def test_all_properties_of_a_message_arrive(port: int) -> None:
    async def main() -> None:
        async with connect(port) as client:
            await client.subscribe("t", identifier=77)
            await client.publish(
                "t",
                "text",
                qos=1,
                payload_format_indicator=1,
                message_expiry_interval=60,
                content_type="text/plain",
                response_topic="answers",
                correlation_data=b"\x00\x01",
                user_properties=(("a", "1"), ("a", "2")),
            )
            (message,) = await take(client)
            assert message.properties[Property.PAYLOAD_FORMAT_INDICATOR] == 1
            assert message.message_expiry_interval in (59, 60)
            assert message.content_type == "text/plain"
            assert message.response_topic == "answers"
            assert message.correlation_data == b"\x00\x01"
            assert message.user_properties == [("a", "1"), ("a", "2")]
            assert message.subscription_identifiers == [77]

    uvloop.run(main())


def test_subscription_options_are_obeyed(port: int) -> None:
    async def main() -> None:
        async with connect(port) as client, connect(port) as other:
            await client.publish("r/kept", "old", qos=1, retain=True)
            await client.subscribe(Subscription(topic_filter="r/#", qos=1, retain_handling=2))
            await client.subscribe("n/#", no_local=True)
            await client.publish("n/own", "no", qos=1)
            await other.publish("n/other", "yes", qos=1)
            assert [message.topic for message in await take(client)] == ["n/other"]
            await other.subscribe("r/#", ("r/+", 1), retain_as_published=True)
            (message,) = await take(other)
            assert (message.text, message.retain) == ("old", True)

    uvloop.run(main())


def test_nothing_comes_after_unsubscribe(port: int, version: int) -> None:
    async def main() -> None:
        async with connect(port, protocol_version=version) as client:
            await client.subscribe("a", "b")
            codes = await client.unsubscribe("a", "never")
            assert codes == ([0, 0x11] if version == 5 else [0, 0])
            assert client.subscriptions == ["b"]
            await client.publish("a", "no", qos=1)
            await client.publish("b", "yes", qos=1)
            assert [message.topic for message in await take(client)] == ["b"]

    uvloop.run(main())


@pytest.mark.parametrize("qos", [1, 2])
def test_thousands_of_concurrent_publishes_arrive_once_each_and_in_order(
    port: int, version: int, qos: int
) -> None:
    number = 3000

    async def main() -> None:
        async with connect(port, protocol_version=version) as client:
            await client.subscribe("t", qos=qos)
            async with asyncio.TaskGroup() as group:
                for index in range(number):
                    group.create_task(client.publish("t", str(index), qos=qos))
                received = [int(message.payload) for message in await take(client, number)]
            assert received == list(range(number))

    uvloop.run(main())


def test_a_slow_application_slows_the_server_down_and_loses_nothing(
    port: int, version: int, broker_name: str
) -> None:
    number, size = 2000, 10

    async def main() -> None:
        options = {"protocol_version": version, "receive_queue_size": size}
        async with connect(port, **options) as slow, connect(port, protocol_version=version) as fast:
            await slow.subscribe("t", qos=1)
            async with asyncio.timeout(DEADLINE):
                await asyncio.gather(*(fast.publish("t", str(index), qos=1) for index in range(number)))
            received = []
            for _ in range(number):
                (message,) = await take(slow)
                received.append(int(message.payload))
                if version == 5 and broker_name == "tidegate":
                    assert len(slow.messages) <= size
            assert received == list(range(number))
            assert slow.statistics()["messages_dropped"] == 0
            if broker_name == "tidegate":
                assert slow.statistics()["over_receive_maximum"] == 0

    uvloop.run(main())


def test_an_application_that_publishes_while_its_queue_is_full_gets_its_acknowledgements(port: int) -> None:
    number = 300

    async def main() -> None:
        async with connect(port, receive_queue_size=5) as client, connect(port) as source:
            await client.subscribe("in", qos=1)
            await asyncio.gather(*(source.publish("in", str(index), qos=1) for index in range(number)))
            async with asyncio.timeout(DEADLINE):
                for _ in range(number):
                    (message,) = await take(client)
                    await client.publish("out", message.payload, qos=2)

    uvloop.run(main())


def test_requests_get_their_own_responses(port: int) -> None:
    async def main() -> None:
        async with connect(port) as caller, connect(port) as responder:
            await responder.subscribe("double", qos=1)

            async def serve() -> None:
                held: list[Message] = []
                async for request in responder.messages:
                    held.append(request)
                    if len(held) == 10:
                        for one in reversed(held):
                            await responder.respond(one, str(int(one.payload) * 2))
                        return

            async with asyncio.TaskGroup() as group:
                group.create_task(serve())
                calls = [caller.request("double", str(index), timeout=DEADLINE) for index in range(10)]
                answers = await asyncio.gather(*calls)
            assert [int(answer.payload) for answer in answers] == [index * 2 for index in range(10)]
            assert len(caller.messages) == 0

    uvloop.run(main())


def test_a_request_ends_at_its_deadline_or_at_once_if_nobody_listens(port: int) -> None:
    async def main() -> None:
        async with connect(port) as caller, connect(port) as silent:
            await silent.subscribe("silent", qos=1)
            with pytest.raises(OperationTimeout):
                await caller.request("silent", timeout=0.2)
            assert caller.statistics()["requests_open"] == 0
            with pytest.raises(NoResponder):
                await caller.request("nobody", timeout=DEADLINE)

    uvloop.run(main())


def test_mqtt_3_1_1_has_no_requests(port: int) -> None:
    async def main() -> None:
        async with connect(port, protocol_version=4) as client:
            with pytest.raises(NotSupported):
                await client.request("t")

    uvloop.run(main())


def test_a_persistent_session_keeps_what_came_meanwhile(port: int, version: int) -> None:
    options: dict[str, Any] = {"protocol_version": version, "client_id": "keeper", "clean_start": False}
    if version == 5:
        options["session_expiry_interval"] = 300

    async def main() -> None:
        async with connect(port, **options) as client:
            await client.subscribe("t", qos=1)
        async with connect(port, protocol_version=version) as other:
            await other.publish("t", "meanwhile", qos=1)
        async with connect(port, **options) as client:
            assert client.connack.session_present
            assert [message.text for message in await take(client)] == ["meanwhile"]

    uvloop.run(main())


def test_a_message_without_manual_acknowledgement_comes_again(port: int, version: int) -> None:
    options: dict[str, Any] = {"protocol_version": version, "client_id": "m", "clean_start": False}
    if version == 5:
        options["session_expiry_interval"] = 300

    async def main() -> None:
        async with connect(port, manual_ack=True, **options) as client:
            await client.subscribe("t", qos=2)
            for text, qos in (("done", 1), ("open", 1), ("open 2", 2)):
                await client.publish("t", text, qos=qos)
            done, _, _ = await take(client, 3)
            done.ack()
        async with connect(port, manual_ack=True, **options) as client:
            again = await take(client, 2)
            assert [(message.text, message.dup) for message in again] == [("open", True), ("open 2", True)]
            for message in again:
                message.ack()
        async with connect(port, **options) as client:
            await client.publish("t", "end", qos=1)
            assert [message.text for message in await take(client)] == ["end"]

    uvloop.run(main())


def test_the_will_speaks_only_for_those_who_do_not_say_goodbye(port: int, version: int) -> None:
    async def main() -> None:
        will = Will(topic="wills", payload=b"gone", qos=1)
        async with connect(port, protocol_version=version) as watcher:
            await watcher.subscribe("wills", qos=1)
            async with connect(port, protocol_version=version, client_id="polite", will=will):
                pass
            async with (
                connect(port, protocol_version=version, client_id="rude", will=will) as rude,
                connect(port, protocol_version=version, client_id="rude"),
            ):
                # The server ends the elder of two that use one identifier.
                with pytest.raises(ConnectionLost):
                    await take(rude)
            assert [message.text for message in await take(watcher)] == ["gone"]
            await watcher.publish("wills", "end", qos=1)
            assert [message.text for message in await take(watcher)] == ["end"]

    uvloop.run(main())


def test_a_session_taken_over_is_told_so_and_not_fought_for(tidegate_broker: BrokerThread) -> None:
    # Mosquitto 2.0.11 closes the elder connection without a DISCONNECT.
    port = tidegate_broker.port

    async def main() -> None:
        async with (
            connect(port, client_id="one", reconnect=True) as elder,
            connect(port, client_id="one"),
        ):
            with pytest.raises(ServerDisconnected) as caught:
                await take(elder)
            assert caught.value.reason_code == ReasonCode.SESSION_TAKEN_OVER
            with pytest.raises(ServerDisconnected):
                await elder.publish("t")

    uvloop.run(main())


def test_aliases_towards_the_server_change_nothing_that_arrives(port: int) -> None:
    async def main() -> None:
        async with connect(port, topic_aliases=3, topic_alias_maximum=5) as client:
            assert client.limits.topic_alias_maximum >= 3
            await client.subscribe("t/#", qos=1)
            topics = [f"t/{index % 5}" for index in range(50)]
            for topic, qos in zip(topics, (qos % 3 for qos in count()), strict=False):
                await client.publish(topic, topic, qos=qos)
            messages = await take(client, 50)
            assert [message.topic for message in messages] == topics
            assert [message.text for message in messages] == topics

    uvloop.run(main())


def test_a_stream_of_qos_0_without_pause_leaves_others_their_turn(port: int) -> None:
    async def main() -> None:
        async with connect(port) as client:
            ticks = 0

            async def tick() -> None:
                nonlocal ticks
                while True:
                    await asyncio.sleep(0)
                    ticks += 1

            ticking = asyncio.create_task(tick())
            for _ in range(2000):
                await client.publish("t", b"x" * 100)
            ticking.cancel()
            assert ticks >= 10

    uvloop.run(main())


def test_wrong_credentials_are_refused_with_the_reason(tmp_path: Path, version: int) -> None:
    async def main(port: int) -> None:
        with pytest.raises(ConnectRefused) as caught:
            async with connect(port, protocol_version=version, username="u", password="wrong"):
                pass
        assert caught.value.reason_code in (ReasonCode.NOT_AUTHORIZED, ReasonCode.BAD_USER_NAME_OR_PASSWORD)
        assert caught.value.hint

    passwords = tmp_path / "passwords"
    passwords.write_text("")
    with mosquitto(tmp_path, f"password_file {passwords}", anonymous=False) as port:
        uvloop.run(main(port))
