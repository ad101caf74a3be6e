"""Section 3.3.1.3 of MQTT 3.1.1: retained messages."""

import pytest

from tests.conformance.v3.support import Join, deliveries, payloads, settle
from tidegate.mqtt import Publish
from tidegate.testing.raw import RawClient


def retained(join: Join, topic: str) -> list[tuple[bytes, int, bool]]:
    """Payload, QoS and RETAIN of what a new subscriber gets."""
    client: RawClient = join("late")
    client.subscribe(topic, 2)
    return [(message.payload, message.qos, message.retain) for message in deliveries(client)]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_MQTT_3_3_1_5_a_retained_message_is_stored_with_its_QoS(qos: int, join: Join, topic: str) -> None:
    publisher = join("publisher")
    publisher.publish(topic, b"kept", qos, retain=True)
    settle(publisher)
    assert retained(join, topic) == [(b"kept", qos, True)]


def test_MQTT_3_3_1_6_a_new_subscription_gets_the_last_retained_message_of_each_matching_topic(
    join: Join, topic: str
) -> None:
    publisher = join("publisher")
    for name in ("a", "b", "b/c"):
        for payload in (b"old ", b"new "):
            publisher.publish(f"{topic}/{name}", payload + name.encode(), 1, retain=True)
    client = join("client")
    client.subscribe(f"{topic}/+")
    assert sorted(payloads(client)) == [b"new a", b"new b"]
    client.subscribe(f"{topic}/#")
    assert sorted(payloads(client)) == [b"new a", b"new b", b"new b/c"]


def test_MQTT_3_3_1_7_a_retained_message_of_QoS_0_replaces_the_one_before(join: Join, topic: str) -> None:
    publisher = join("publisher")
    publisher.publish(topic, b"old", 2, retain=True)
    publisher.publish(topic, b"new", 0, retain=True)
    settle(publisher)
    assert retained(join, topic) == [(b"new", 0, True)]


def test_MQTT_3_3_1_8_RETAIN_is_set_on_messages_sent_for_a_new_subscription(join: Join, topic: str) -> None:
    join("publisher").publish(topic, b"kept", 1, retain=True)
    client = join("client")
    client.subscribe(topic)
    client.expect(Publish, payload=b"kept", retain=True)


def test_MQTT_3_3_1_9_RETAIN_is_clear_on_messages_sent_for_an_established_subscription(
    join: Join, topic: str
) -> None:
    client = join("client")
    client.subscribe(topic, 1)
    join("publisher").publish(topic, b"fresh", 1, retain=True)
    client.expect(Publish, payload=b"fresh", retain=False)


def test_MQTT_3_3_1_10_an_empty_retained_message_is_delivered_and_removes_the_stored_one(
    join: Join, topic: str
) -> None:
    client, publisher = join("client"), join("publisher")
    publisher.publish(topic, b"kept", 1, retain=True)
    client.subscribe(topic)
    client.expect(Publish, payload=b"kept", retain=True)
    publisher.publish(topic, b"", 1, retain=True)
    client.expect(Publish, payload=b"", retain=False)
    assert retained(join, topic) == []


def test_MQTT_3_3_1_11_an_empty_retained_message_is_not_stored(join: Join, topic: str) -> None:
    publisher = join("publisher")
    publisher.publish(topic, b"", 1, retain=True)
    assert retained(join, topic) == []
    assert retained(join, f"{topic}/#") == []


def test_MQTT_3_3_1_12_a_message_without_RETAIN_neither_stores_nor_removes(join: Join, topic: str) -> None:
    publisher = join("publisher")
    publisher.publish(f"{topic}/new", b"not kept", 1)
    assert retained(join, f"{topic}/new") == []
    publisher.publish(topic, b"kept", 1, retain=True)
    publisher.publish(topic, b"passing", 1)
    publisher.publish(topic, b"", 1)
    assert retained(join, topic) == [(b"kept", 1, True)]
