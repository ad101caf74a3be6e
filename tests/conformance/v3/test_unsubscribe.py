"""Sections 3.10 and 3.11 of MQTT 3.1.1: UNSUBSCRIBE and UNSUBACK."""

import pytest

from tests.conformance.v3 import wire
from tests.conformance.v3.support import Join, deliveries, expect_dropped, payloads, settle, vanish
from tidegate.mqtt import Pubcomp, Publish, Pubrec, Pubrel, Unsuback


@pytest.mark.parametrize("flags", [0x00, 0x01, 0x03, 0x06, 0x0A])
def test_MQTT_3_10_1_1_UNSUBSCRIBE_with_other_flags_than_0010_closes_the_connection(
    flags: int, join: Join
) -> None:
    client = join()
    client.send_bytes(wire.unsubscribe("a", first_byte=0xA0 | flags))
    expect_dropped(client)


@pytest.mark.parametrize("fault", wire.ILL_FORMED_UTF8)
def test_MQTT_3_10_3_1_topic_filters_must_be_utf8(fault: str, join: Join) -> None:
    client = join()
    client.send_bytes(wire.unsubscribe("fine", wire.ILL_FORMED_UTF8[fault]))
    expect_dropped(client)


def test_MQTT_3_10_3_1_topic_filters_are_packed_contiguously(join: Join, topic: str) -> None:
    client = join()
    client.send_bytes(wire.packet(0xA2, b"\x00\x01" + wire.string(topic) + b"\x00"))
    expect_dropped(client)


@pytest.mark.parametrize("body", [b"", b"\x00\x01"])
def test_MQTT_3_10_3_2_an_UNSUBSCRIBE_without_a_filter_closes_the_connection(body: bytes, join: Join) -> None:
    client = join()
    client.send_bytes(wire.packet(0xA2, body))
    expect_dropped(client)


def test_MQTT_3_10_4_1_filters_are_compared_character_by_character(join: Join, topic: str) -> None:
    client = join()
    kept = [f"{topic}/a", f"{topic}/+", f"{topic}/#"]
    for name in kept:
        client.subscribe(name)
    # Each of these covers the topic, or is a subscription but for one character; none is one.
    client.unsubscribe("#", f"{topic}/a/", f"{topic}/A", f"{topic}/+/#", f"+/{topic.partition('/')[2]}/a")
    client.publish(f"{topic}/a", b"before", 1)
    assert set(payloads(client)) == {b"before"}
    client.unsubscribe(f"{topic}/+")
    client.unsubscribe(f"{topic}/#")
    client.publish(f"{topic}/b", b"only wildcards matched this", 1)
    assert payloads(client) == []
    client.publish(f"{topic}/a", b"still", 1)
    assert payloads(client) == [b"still"]
    client.unsubscribe(f"{topic}/a")
    client.publish(f"{topic}/a", b"after", 1)
    assert payloads(client) == []


def test_MQTT_3_10_4_2_no_new_messages_are_added_after_UNSUBSCRIBE(join: Join, topic: str) -> None:
    client, publisher = join("client"), join("publisher")
    client.subscribe(topic, 1)
    publisher.publish(topic, b"before", 1)
    client.take(Publish, payload=b"before")
    client.unsubscribe(topic)
    publisher.publish(topic, b"after", 1)
    assert payloads(client) == []


def test_MQTT_3_10_4_2_no_new_messages_are_added_for_an_offline_session(join: Join, topic: str) -> None:
    client = join("client", clean_start=False)
    client.subscribe(topic, 1)
    client.unsubscribe(topic)
    client.disconnect()
    join("publisher").publish(topic, b"after", 1)
    settle(join("client", clean_start=False, session_present=True))


def test_MQTT_3_10_4_3_delivery_that_has_begun_is_completed_after_UNSUBSCRIBE(join: Join, topic: str) -> None:
    client, publisher = join("client", clean_start=False), join("publisher")
    client.subscribe(topic, 2)
    publisher.publish(topic, b"one", 1)
    publisher.publish(topic, b"two", 2)
    one, two = deliveries(client)
    client.unsubscribe(topic)
    identifier = two.packet_identifier or 0
    client.send(Pubrec(packet_identifier=identifier))
    client.expect(Pubrel, packet_identifier=identifier)
    client.send(Pubcomp(packet_identifier=identifier))
    settle(client)
    vanish(client)
    client = join("client", clean_start=False, session_present=True)
    client.acknowledge(
        client.expect(Publish, payload=b"one", packet_identifier=one.packet_identifier, dup=True)
    )
    settle(client)


def test_MQTT_3_10_4_4_UNSUBACK_has_the_identifier_of_UNSUBSCRIBE(join: Join, topic: str) -> None:
    client = join()
    client.subscribe(topic)
    for identifier in (1, 256, 65_535):
        client.send_bytes(wire.unsubscribe(topic, packet_identifier=identifier))
        assert client.receive_bytes() == wire.packet(0xB0, identifier.to_bytes(2, "big"))


def test_MQTT_3_10_4_5_UNSUBACK_comes_even_if_nothing_was_subscribed(join: Join, topic: str) -> None:
    client = join()
    client.send_bytes(wire.unsubscribe(topic, packet_identifier=3))
    client.expect(Unsuback, packet_identifier=3)


def test_MQTT_3_10_4_6_several_filters_act_as_several_UNSUBSCRIBE_packets_with_one_UNSUBACK(
    join: Join, topic: str
) -> None:
    client = join()
    for name in "abc":
        client.subscribe(f"{topic}/{name}")
    client.send_bytes(wire.unsubscribe(f"{topic}/a", f"{topic}/nothing", f"{topic}/c", packet_identifier=500))
    assert client.barrier() == [Unsuback(packet_identifier=500)]
    for name in "abc":
        client.publish(f"{topic}/{name}", name.encode(), 1)
    assert payloads(client) == [b"b"]
