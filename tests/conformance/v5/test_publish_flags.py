"""MQTT 5 section 3.3.1: DUP, QoS and RETAIN of PUBLISH."""

import pytest

from tests.conformance.v5.conftest import Join
from tests.conformance.v5.steps import (
    MALFORMED,
    PROTOCOL_ERROR,
    collect,
    expect_disconnect,
    messages_besides_marker,
)
from tests.conformance.v5.wire import frame, prefixed, publish
from tidegate.mqtt import Property, Publish

KEEP = {Property.SESSION_EXPIRY_INTERVAL: 300}


@pytest.mark.parametrize("qos", [1, 2])
def test_MQTT_3_3_1_1_a_message_sent_again_has_dup(join: Join, topic: str, qos: int) -> None:
    client = join("device", properties=KEEP)
    client.subscribe(topic, qos=qos)
    join("publisher").publish(topic, b"again", qos=qos)
    first = client.expect(Publish, dup=False, qos=qos)
    client.close()
    client = join("device", clean_start=False, properties=KEEP)
    client.expect(Publish, dup=True, qos=qos, packet_identifier=first.packet_identifier, payload=b"again")


def test_MQTT_3_3_1_2_dup_with_qos_0_is_malformed(join: Join, topic: str) -> None:
    client = join()
    client.send_bytes(publish(topic, first_byte=0x38))
    expect_disconnect(client, MALFORMED, PROTOCOL_ERROR)


def test_MQTT_3_3_1_2_the_server_sets_no_dup_with_qos_0(join: Join, topic: str) -> None:
    client = join()
    client.subscribe(topic, qos=0)
    client.publish(topic, qos=1, dup=True)
    client.expect(Publish, qos=0, dup=False)


@pytest.mark.parametrize("qos", [1, 2])
def test_MQTT_3_3_1_3_dup_is_not_passed_on(join: Join, topic: str, qos: int) -> None:
    client = join()
    client.subscribe(topic, qos=2)
    client.publish(topic, qos=qos, dup=True)
    client.expect(Publish, qos=qos, dup=False)


@pytest.mark.parametrize("first_byte", [0x36, 0x37, 0x3E])
def test_MQTT_3_3_1_4_a_qos_of_three_is_malformed(join: Join, topic: str, first_byte: int) -> None:
    client = join()
    client.send_bytes(frame(first_byte, prefixed(topic) + b"\x00\x01\x00"))
    expect_disconnect(client, MALFORMED)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_MQTT_3_3_1_5_a_retained_message_replaces_the_one_before(join: Join, topic: str, qos: int) -> None:
    publisher = join("publisher")
    publisher.publish(topic, b"old", qos=1, retain=True)
    publisher.publish(topic, b"new", qos=qos, retain=True)
    publisher.barrier()
    late = join("late")
    late.subscribe(topic, qos=2)
    late.acknowledge(late.expect(Publish, payload=b"new", qos=qos, retain=True))
    assert messages_besides_marker(late, topic) == []


def test_MQTT_3_3_1_6_an_empty_retained_message_is_delivered_and_removes_the_retained_one(
    join: Join, topic: str
) -> None:
    client = join()
    client.publish(topic, b"kept", qos=1, retain=True)
    client.subscribe(topic)
    client.expect(Publish, payload=b"kept", retain=True)
    client.publish(topic, b"", qos=1, retain=True)
    client.expect(Publish, payload=b"", retain=False)
    late = join("late")
    late.subscribe(topic)
    assert messages_besides_marker(late, topic) == []


def test_MQTT_3_3_1_7_an_empty_retained_message_is_not_stored(join: Join, topic: str) -> None:
    join("publisher").publish(topic, b"", qos=1, retain=True)
    late = join("late")
    late.subscribe(topic)
    assert messages_besides_marker(late, topic) == []


def test_MQTT_3_3_1_8_a_message_without_retain_leaves_the_retained_one(join: Join, topic: str) -> None:
    publisher = join("publisher")
    publisher.publish(topic, b"kept", qos=1, retain=True)
    publisher.publish(topic, b"passing", qos=1)
    publisher.publish(topic, b"", qos=1)
    late = join("late")
    late.subscribe(topic)
    late.expect(Publish, payload=b"kept", retain=True)
    assert messages_besides_marker(late, topic) == []


def test_MQTT_3_3_1_9_retain_handling_0_sends_what_matches_every_time(join: Join, topic: str) -> None:
    client = join()
    for name in ("a", "b", "a/c"):
        client.publish(f"{topic}/{name}", name.encode(), qos=1, retain=True)
    for _ in range(2):
        client.subscribe(f"{topic}/+")
        messages = collect(client, 2)
        assert {message.payload for message in messages} == {b"a", b"b"}
        assert all(message.retain for message in messages)


def test_MQTT_3_3_1_10_retain_handling_1_sends_retained_messages_to_a_new_subscription_only(
    join: Join, topic: str
) -> None:
    client = join()
    client.publish(topic, b"kept", qos=1, retain=True)
    client.subscribe(topic, retain_handling=1)
    client.expect(Publish, payload=b"kept", retain=True)
    client.subscribe(topic, qos=1, retain_handling=1)
    assert messages_besides_marker(client, topic) == []
    client.unsubscribe(topic)
    client.subscribe(topic, retain_handling=1)
    client.expect(Publish, payload=b"kept", retain=True)


def test_MQTT_3_3_1_11_retain_handling_2_sends_no_retained_messages(join: Join, topic: str) -> None:
    client = join()
    client.publish(topic, b"kept", qos=1, retain=True)
    for _ in range(2):
        client.subscribe(topic, retain_handling=2)
        assert messages_besides_marker(client, topic) == []


@pytest.mark.parametrize("retain", [False, True])
def test_MQTT_3_3_1_12_without_retain_as_published_messages_arrive_without_retain(
    join: Join, topic: str, retain: bool
) -> None:
    client = join()
    client.subscribe(topic, retain_as_published=False)
    client.publish(topic, b"live", retain=retain)
    client.expect(Publish, payload=b"live", retain=False)


@pytest.mark.parametrize("retain", [False, True])
def test_MQTT_3_3_1_13_with_retain_as_published_the_flag_is_passed_on(
    join: Join, topic: str, retain: bool
) -> None:
    client = join()
    client.subscribe(topic, retain_as_published=True)
    client.publish(topic, b"live", retain=retain)
    client.expect(Publish, payload=b"live", retain=retain)
