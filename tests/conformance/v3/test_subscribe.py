"""Sections 3.8 and 3.9 of MQTT 3.1.1: SUBSCRIBE and SUBACK."""

from collections.abc import Callable

import pytest

from tests.conformance.v3 import wire
from tests.conformance.v3.support import BrokerWith, Join, deliveries, expect_dropped, payloads
from tidegate.mqtt import Publish, Suback, Subscription

Unique = Callable[[str], str]


@pytest.mark.parametrize("flags", [0x00, 0x01, 0x03, 0x06, 0x0A])
def test_MQTT_3_8_1_1_SUBSCRIBE_with_other_flags_than_0010_closes_the_connection(
    flags: int, join: Join
) -> None:
    client = join()
    client.send_bytes(wire.subscribe(("a", 0), first_byte=0x80 | flags))
    expect_dropped(client)


@pytest.mark.parametrize("fault", wire.ILL_FORMED_UTF8)
def test_MQTT_3_8_3_1_topic_filters_must_be_utf8(fault: str, join: Join) -> None:
    client = join()
    client.send_bytes(wire.subscribe(("fine", 0), (wire.ILL_FORMED_UTF8[fault], 0)))
    expect_dropped(client)


def test_MQTT_3_8_3_2_wildcards_are_rejected_where_they_are_not_supported(
    join: Join, broker_with: BrokerWith
) -> None:
    client = join(to=broker_with(wildcard_subscription_available=False))
    filters = ["a/+", "plain", "#"]
    suback = client.subscribe_all([Subscription(topic_filter=name) for name in filters])
    assert suback.reason_codes == [0x80, 0x00, 0x80]
    client.publish("a/b", b"unheard", 1)
    assert payloads(client) == []


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(wire.packet(0x82, b"\x00\x01"), id="no filter"),
        pytest.param(wire.packet(0x82, b"\x00\x01" + wire.string("a")), id="no QoS"),
        pytest.param(wire.packet(0x82), id="nothing"),
    ],
)
def test_MQTT_3_8_3_3_a_SUBSCRIBE_without_a_filter_and_QoS_closes_the_connection(
    data: bytes, join: Join
) -> None:
    client = join()
    client.send_bytes(data)
    expect_dropped(client)


@pytest.mark.parametrize("requested", [0x03, 0x04, 0x10, 0x81, 0x42])
def test_MQTT_3_8_3_4_reserved_bits_or_QoS_3_close_the_connection(
    requested: int, join: Join, topic: str
) -> None:
    client = join()
    client.send_bytes(wire.subscribe((topic, requested)))
    expect_dropped(client)


def test_MQTT_3_8_4_1_SUBSCRIBE_is_answered_with_SUBACK(join: Join, topic: str) -> None:
    client = join()
    client.send_bytes(wire.subscribe((topic, 0)))
    client.expect(Suback)


def test_MQTT_3_8_4_2_SUBACK_has_the_identifier_of_SUBSCRIBE(join: Join, topic: str) -> None:
    client = join()
    for identifier in (1, 255, 65_535):
        client.send_bytes(wire.subscribe((topic, 0), packet_identifier=identifier))
        client.expect(Suback, packet_identifier=identifier)


def test_MQTT_3_8_4_3_an_identical_filter_replaces_the_subscription(join: Join, topic: str) -> None:
    client, publisher = join("client"), join("publisher")
    client.subscribe(topic, 0)
    client.subscribe(topic, 2)
    publisher.publish(topic, b"once", 2)
    client.acknowledge(client.expect(Publish, payload=b"once", qos=2))
    client.subscribe(topic, 1)
    publisher.publish(topic, b"lower", 2)
    assert [(message.payload, message.qos) for message in deliveries(client)] == [(b"lower", 1)]


def test_MQTT_3_8_4_3_retained_messages_are_sent_again_when_a_filter_is_repeated(
    join: Join, topic: str
) -> None:
    client = join()
    client.publish(topic, b"kept", 1, retain=True)
    for _ in range(3):
        client.subscribe(topic)
        client.expect(Publish, payload=b"kept", retain=True)
    client.subscribe(f"{topic}/#")
    client.expect(Publish, payload=b"kept", retain=True)


def test_MQTT_3_8_4_3_repeating_a_filter_does_not_interrupt_the_flow(join: Join, topic: str) -> None:
    client, publisher = join("client"), join("publisher")
    client.subscribe(topic, 1)
    expected = []
    for number in range(50):
        if number % 10 == 0:
            client.send_bytes(wire.subscribe((topic, 1), packet_identifier=1000 + number))
        expected.append(b"%d" % number)
        publisher.publish(topic, expected[-1], 1)
    messages = [packet.payload for packet in client.barrier() if isinstance(packet, Publish)]
    assert messages == expected


def test_MQTT_3_8_4_4_several_filters_act_as_several_SUBSCRIBE_packets(join: Join, topic: str) -> None:
    client = join()
    client.publish(f"{topic}/b", b"kept", 1, retain=True)
    client.send_bytes(wire.subscribe((f"{topic}/a", 0), (f"{topic}/b", 1), (f"{topic}/c", 2)))
    client.take(Suback, packet_identifier=1, reason_codes=[0, 1, 2])
    client.take(Publish, payload=b"kept", retain=True)
    assert client.barrier() == []
    for name in "abc":
        client.publish(f"{topic}/{name}", name.encode(), 1)
    assert payloads(client) == [b"a", b"b", b"c"]


def test_MQTT_3_8_4_4_the_same_filter_twice_in_one_SUBSCRIBE_makes_one_subscription(
    join: Join, topic: str
) -> None:
    client = join()
    client.send_bytes(wire.subscribe((topic, 0), (topic, 1)))
    client.expect(Suback, reason_codes=[0, 1])
    client.publish(topic, b"once", 1)
    assert [(message.payload, message.qos) for message in deliveries(client)] == [(b"once", 1)]


def test_MQTT_3_8_4_5_SUBACK_has_a_return_code_for_each_filter(join: Join, topic: str) -> None:
    client = join()
    filters = [Subscription(topic_filter=f"{topic}/{number}", qos=number % 3) for number in range(50)]
    assert client.subscribe_all(filters).reason_codes == [number % 3 for number in range(50)]


def test_MQTT_3_8_4_5_SUBACK_shows_the_QoS_that_was_granted(join: Join, broker_with: BrokerWith) -> None:
    client = join(to=broker_with(maximum_qos=1))
    suback = client.subscribe_all([Subscription(topic_filter=f"t/{qos}", qos=qos) for qos in (0, 1, 2)])
    assert suback.reason_codes == [0, 1, 1]


@pytest.mark.parametrize("granted", [0, 1, 2])
@pytest.mark.parametrize("published", [0, 1, 2])
def test_MQTT_3_8_4_6_messages_are_sent_with_the_lower_of_published_and_granted_QoS(
    published: int, granted: int, join: Join, topic: str
) -> None:
    client, publisher = join("client"), join("publisher")
    client.subscribe(topic, granted)
    publisher.publish(topic, b"x", published)
    publisher.barrier()
    assert [message.qos for message in deliveries(client)] == [min(published, granted)]


def test_MQTT_3_9_3_1_return_codes_come_in_the_order_of_the_filters(join: Join, topic: str) -> None:
    client = join()
    order = [2, 0, 1, 1, 0, 2]
    filters = [Subscription(topic_filter=f"{topic}/{number}", qos=qos) for number, qos in enumerate(order)]
    assert client.subscribe_all(filters).reason_codes == order


def test_MQTT_3_9_3_2_only_the_return_codes_of_the_standard_are_used(
    join: Join, broker_with: BrokerWith
) -> None:
    broker = broker_with(
        wildcard_subscription_available=False, shared_subscription_available=False, max_subscriptions=3
    )
    client = join(to=broker)
    for name in ("a/#", "$share/group/a", "a", "b", "c", "d", "e"):
        client.send_bytes(wire.subscribe((name, 1)))
        body = _body_of_suback(client.receive_bytes())
        assert body[2:] in {b"\x01", b"\x80"}


def _body_of_suback(data: bytes) -> bytes:
    [(first_byte, body)] = wire.split(data)
    assert first_byte == 0x90
    return body
