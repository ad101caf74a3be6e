"""MQTT 5 sections 3.10 and 3.11: UNSUBSCRIBE and UNSUBACK."""

import pytest

from tests.conformance.v5.conftest import Join
from tests.conformance.v5.steps import (
    MALFORMED,
    PROTOCOL_ERROR,
    collect,
    expect_disconnect,
    messages_besides_marker,
)
from tests.conformance.v5.wire import receive_frames, unsubscribe
from tidegate.mqtt import Property, Publish, Pubrec, Pubrel, ReasonCode, Unsuback

KEEP = {Property.SESSION_EXPIRY_INTERVAL: 300}
NOT_THERE = ReasonCode.NO_SUBSCRIPTION_EXISTED


@pytest.mark.parametrize("first_byte", [0xA0, 0xA1, 0xA3, 0xA6, 0xAA])
def test_MQTT_3_10_1_1_an_unsubscribe_with_other_flags_closes_the_connection(
    join: Join, first_byte: int
) -> None:
    client = join()
    client.send_bytes(unsubscribe("a", first_byte=first_byte))
    expect_disconnect(client, MALFORMED)


@pytest.mark.parametrize("name", [b"a/\xff", b"\xc0\x80", b"a\0"])
def test_MQTT_3_10_3_1_a_filter_that_is_not_utf8_closes_the_connection(join: Join, name: bytes) -> None:
    client = join()
    client.send_bytes(unsubscribe(name))
    expect_disconnect(client, MALFORMED, ReasonCode.TOPIC_FILTER_INVALID)


def test_MQTT_3_10_3_2_an_unsubscribe_without_filter_is_a_protocol_error(join: Join) -> None:
    client = join()
    client.send_bytes(unsubscribe())
    expect_disconnect(client, PROTOCOL_ERROR, MALFORMED)


def test_MQTT_3_10_4_1_only_the_equal_filter_is_removed(join: Join, topic: str) -> None:
    client = join()
    client.subscribe(f"{topic}/+")
    client.subscribe(f"{topic}/a")
    assert client.unsubscribe(f"{topic}/#", f"{topic}/A").reason_codes == [NOT_THERE, NOT_THERE]
    assert client.unsubscribe(f"{topic}/a").reason_codes == [ReasonCode.SUCCESS]
    client.publish(f"{topic}/a", b"by wildcard")
    client.expect(Publish, payload=b"by wildcard")
    assert client.unsubscribe(f"{topic}/+").reason_codes == [ReasonCode.SUCCESS]


def test_MQTT_3_10_4_2_no_new_message_comes_by_a_removed_subscription(join: Join, topic: str) -> None:
    client = join()
    client.subscribe(f"{topic}/x", qos=1)
    client.subscribe(f"{topic}/marker")
    client.publish(f"{topic}/x", b"before")
    client.expect(Publish, payload=b"before")
    client.unsubscribe(f"{topic}/x")
    client.publish(f"{topic}/x", b"after", qos=1)
    assert messages_besides_marker(client, f"{topic}/marker") == []


def test_MQTT_3_10_4_3_a_delivery_that_began_is_completed(join: Join, topic: str) -> None:
    client = join("device", properties=KEEP)
    client.subscribe(topic, qos=2)
    publisher = join("publisher")
    publisher.publish(topic, b"one", qos=1)
    publisher.publish(topic, b"two", qos=2)
    collect(client, 2, acknowledge=False)
    client.unsubscribe(topic)
    client.close()
    client = join("device", clean_start=False, properties=KEEP)
    client.acknowledge(client.expect(Publish, payload=b"one", dup=True, qos=1))
    message = client.expect(Publish, payload=b"two", dup=True, qos=2)
    assert message.packet_identifier is not None
    client.send(Pubrec(packet_identifier=message.packet_identifier))
    client.expect(Pubrel, packet_identifier=message.packet_identifier, reason_code=ReasonCode.SUCCESS)


def test_MQTT_3_10_4_4_unsubscribe_is_answered_with_its_identifier(join: Join, topic: str) -> None:
    client = join()
    client.subscribe(topic)
    client.send_bytes(unsubscribe(topic, identifier=54_321))
    client.expect(Unsuback, packet_identifier=54_321, reason_codes=[ReasonCode.SUCCESS])


def test_MQTT_3_10_4_5_an_unsubscribe_that_removes_nothing_is_answered(join: Join, topic: str) -> None:
    client = join()
    client.send_bytes(unsubscribe(topic, identifier=9))
    client.expect(Unsuback, packet_identifier=9, reason_codes=[NOT_THERE])


def test_MQTT_3_10_4_6_several_filters_work_like_several_unsubscribes_with_one_answer(
    join: Join, topic: str
) -> None:
    client = join()
    names = [f"{topic}/{number}" for number in range(4)]
    for name in names:
        client.subscribe(name)
    client.subscribe(f"{topic}/marker")
    assert client.unsubscribe(*names, names[0]).reason_codes == [0, 0, 0, 0, NOT_THERE]
    for name in names:
        client.publish(name)
    assert messages_besides_marker(client, f"{topic}/marker") == []


def answer_to_a_small_client(join: Join, topic: str) -> bytes:
    maximum = 24
    properties = {Property.MAXIMUM_PACKET_SIZE: maximum, Property.USER_PROPERTY: [("k", "v" * 100)]}
    client = join(properties=properties)
    client.send_bytes(unsubscribe(topic, identifier=1))
    (unsuback,) = receive_frames(client, 1)
    assert len(unsuback) <= maximum
    return unsuback


def test_MQTT_3_11_2_1_a_reason_string_does_not_make_unsuback_too_large(join: Join, topic: str) -> None:
    assert answer_to_a_small_client(join, topic)[-1] == NOT_THERE


def test_MQTT_3_11_2_2_user_properties_do_not_make_unsuback_too_large(join: Join, topic: str) -> None:
    assert b"v" * 10 not in answer_to_a_small_client(join, topic)


def test_MQTT_3_11_3_1_reason_codes_come_in_the_order_of_the_filters(join: Join, topic: str) -> None:
    client = join()
    client.subscribe(f"{topic}/b")
    client.subscribe(f"{topic}/d")
    names = [f"{topic}/{name}" for name in "abcd"]
    assert client.unsubscribe(*names).reason_codes == [NOT_THERE, 0, NOT_THERE, 0]


def test_MQTT_3_11_3_2_every_reason_code_is_one_of_unsuback(join: Join, topic: str) -> None:
    client = join()
    client.subscribe(f"$share/g/{topic}")
    client.send_bytes(unsubscribe(f"$share/g/{topic}", topic, "$share/other/x", identifier=3))
    (unsuback,) = receive_frames(client, 1)
    assert unsuback == b"\xb0\x06\x00\x03\x00\x00\x11\x11"
