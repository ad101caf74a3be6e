"""Section 3.3 of MQTT 3.1.1 but for retained messages: flags, topic names and answers of PUBLISH."""

import pytest

from tests.conformance.v3 import wire
from tests.conformance.v3.support import (
    BrokerWith,
    Join,
    deliveries,
    everything_until_closed,
    expect_dropped,
    payloads,
    vanish,
)
from tidegate.broker.connection import Connection
from tidegate.broker.hooks import Hooks
from tidegate.broker.session import Session
from tidegate.mqtt import Puback, Publish, Pubrec, Subscription


def test_MQTT_3_3_1_1_a_message_that_is_sent_again_has_DUP_set(join: Join, topic: str) -> None:
    client = join("client", clean_start=False)
    client.subscribe(topic, 2)
    publisher = join("publisher")
    publisher.publish(topic, b"one", 1)
    publisher.publish(topic, b"two", 2)
    assert [message.dup for message in deliveries(client)] == [False, False]
    vanish(client)
    client = join("client", clean_start=False, session_present=True)
    assert [message.dup for message in deliveries(client)] == [True, True]


def test_MQTT_3_3_1_2_DUP_is_clear_on_all_messages_of_QoS_0(join: Join, topic: str) -> None:
    client = join()
    client.subscribe(topic, 0)
    client.publish(topic, b"again", 1, dup=True)
    client.expect(Publish, payload=b"again", qos=0, dup=False)


def test_MQTT_3_3_1_2_a_message_of_QoS_0_with_DUP_closes_the_connection(join: Join, topic: str) -> None:
    client = join()
    client.send_bytes(wire.publish(topic, b"x", flags=0x08))
    expect_dropped(client)


@pytest.mark.parametrize("qos", [1, 2])
def test_MQTT_3_3_1_3_DUP_of_the_publisher_is_not_passed_on(qos: int, join: Join, topic: str) -> None:
    client = join()
    client.subscribe(topic, 2)
    client.publish(topic, b"again", qos, dup=True)
    client.expect(Publish, payload=b"again", qos=qos, dup=False)


@pytest.mark.parametrize("flags", [0x06, 0x07, 0x0E])
def test_MQTT_3_3_1_4_QoS_3_closes_the_connection(flags: int, join: Join, topic: str) -> None:
    client = join()
    client.send_bytes(wire.publish(topic, b"x", flags=flags, packet_identifier=1))
    expect_dropped(client)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x30\x00", id="no topic name"),
        pytest.param(b"\x30\x01\x00", id="half a length"),
        pytest.param(b"\x30\x04\x00\x05ab", id="cut off topic name"),
        pytest.param(wire.publish(b"a\xff"), id="not UTF-8"),
    ],
)
def test_MQTT_3_3_2_1_a_PUBLISH_without_a_topic_name_in_utf8_closes_the_connection(
    data: bytes, join: Join
) -> None:
    client = join()
    client.send_bytes(data)
    expect_dropped(client)


@pytest.mark.parametrize("name", ["#", "+", "a/#", "a/+/b", "a#", "a+b"])
def test_MQTT_3_3_2_2_a_wildcard_in_a_topic_name_closes_the_connection(name: str, join: Join) -> None:
    client = join()
    client.send_bytes(wire.publish(name, b"x"))
    expect_dropped(client)


def test_MQTT_3_3_2_3_the_topic_name_sent_to_a_subscriber_matches_its_filter(join: Join, topic: str) -> None:
    client = join()
    client.subscribe(f"{topic}/+/c", 1)
    for name in ("b/c", "x/c", "b", "b/c/d", "b/d", "/c"):
        client.publish(f"{topic}/{name}", name.encode(), 1)
    got = [(message.topic, message.payload) for message in deliveries(client)]
    assert got == [(f"{topic}/{name}", name.encode()) for name in ("b/c", "x/c", "/c")]


def test_MQTT_3_3_4_1_the_answer_to_a_PUBLISH_depends_on_its_QoS(join: Join, topic: str) -> None:
    client = join()
    client.send(Publish(topic=topic, qos=0))
    assert client.barrier() == []
    client.send(Publish(topic=topic, qos=1, packet_identifier=1))
    client.expect(Puback, packet_identifier=1)
    client.send(Publish(topic=topic, qos=2, packet_identifier=2))
    client.expect(Pubrec, packet_identifier=2)
    assert client.barrier() == []


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_MQTT_3_3_5_1_overlapping_subscriptions_deliver_with_the_highest_QoS(
    qos: int, join: Join, topic: str
) -> None:
    client, publisher = join("client"), join("publisher")
    granted = {f"{topic}/#": 0, f"{topic}/+": 2, f"{topic}/a": 1}
    client.subscribe_all([Subscription(topic_filter=name, qos=limit) for name, limit in granted.items()])
    publisher.publish(f"{topic}/a", b"x", qos)
    publisher.barrier()
    got = [message.qos for message in deliveries(client)]
    assert max(got) == qos
    # One copy, or one a subscription with the QoS of that subscription: the standard leaves the choice.
    assert got == [qos] or sorted(got) == sorted(min(limit, qos) for limit in granted.values())


class ReadOnly:
    """Rights of clients that may subscribe to anything and publish nothing below `private/`."""

    def may_publish(self, client: Connection, topic: str) -> bool:
        return not topic.startswith("private/")

    def may_subscribe(self, client: Connection, topic_filter: str) -> bool:
        return True

    def may_receive(self, session: Session, topic: str) -> bool:
        return True


@pytest.mark.parametrize("qos", [1, 2])
def test_MQTT_3_3_5_2_a_message_that_is_not_allowed_is_acknowledged_or_ends_the_connection(
    qos: int, join: Join, broker_of: BrokerWith
) -> None:
    broker = broker_of(hooks=Hooks(authoriser=ReadOnly()))
    watcher, client = join("watcher", to=broker), join("client", to=broker)
    watcher.subscribe("#")
    client.send_bytes(wire.publish("private/a", b"forbidden", flags=qos << 1, packet_identifier=3))
    client.send_bytes(wire.packet(0x62, b"\x00\x03") if qos == 2 else b"")
    client.send_bytes(b"\xe0\x00")
    acknowledged = b"\x40\x02\x00\x03" if qos == 1 else b"\x50\x02\x00\x03\x70\x02\x00\x03"
    assert everything_until_closed(client) in {b"", acknowledged}
    watcher.publish("public", b"marker", 1)
    assert payloads(watcher) == [b"marker"]
