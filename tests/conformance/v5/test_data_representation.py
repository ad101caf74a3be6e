"""MQTT 5 chapters 1.5 and 2: data types, fixed header, packet identifiers, property length."""

from collections.abc import Callable

import pytest

from tests.conformance.conftest import Dial
from tests.conformance.v5.conftest import Join
from tests.conformance.v5.steps import MALFORMED, PROTOCOL_ERROR, collect, expect_disconnect, expect_refusal
from tests.conformance.v5.wire import (
    connect,
    frame,
    length,
    prefixed,
    publish,
    receive_frames,
    subscribe,
    unsubscribe,
)
from tidegate.mqtt import (
    Property,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    ReasonCode,
    Suback,
    Subscription,
    Unsuback,
)
from tidegate.mqtt.packets import Subscribe, Unsubscribe

ILL_FORMED = [
    pytest.param(b"a\xed\xa0\x80", id="surrogate"),
    pytest.param(b"a\xff", id="no-utf8"),
    pytest.param(b"a\xc0\xaf", id="overlong"),
    pytest.param(b"a\xe2\x82", id="cut"),
]


@pytest.mark.parametrize("text", ILL_FORMED)
def test_MQTT_1_5_4_1_ill_formed_utf8_in_a_topic_name_closes_the_connection(join: Join, text: bytes) -> None:
    client = join()
    client.send_bytes(publish(text))
    expect_disconnect(client, MALFORMED)


@pytest.mark.parametrize("text", ILL_FORMED)
def test_MQTT_1_5_4_1_ill_formed_utf8_in_a_topic_filter_closes_the_connection(
    join: Join, text: bytes
) -> None:
    client = join()
    client.send_bytes(subscribe((text, 0)))
    expect_disconnect(client, MALFORMED)


def test_MQTT_1_5_4_2_a_null_character_in_a_topic_name_closes_the_connection(join: Join) -> None:
    client = join()
    client.send_bytes(publish(b"a\0b"))
    expect_disconnect(client, MALFORMED, ReasonCode.TOPIC_NAME_INVALID)


def test_MQTT_1_5_4_2_a_null_character_in_a_client_identifier_is_refused(dial: Dial) -> None:
    client = dial()
    client.send_bytes(connect(prefixed(b"a\0b")))
    expect_refusal(client, MALFORMED)


def test_MQTT_1_5_4_3_a_byte_order_mark_is_part_of_the_topic(join: Join, topic: str) -> None:
    client = join()
    client.subscribe(f"\ufeff{topic}")
    client.publish(topic, b"without")
    client.publish(f"\ufeff{topic}", b"with")
    client.expect(Publish, topic=f"\ufeff{topic}", payload=b"with")


@pytest.mark.parametrize("size", [0, 100, 200, 16_000, 17_000])
def test_MQTT_1_5_5_1_lengths_the_server_sends_have_the_fewest_bytes(
    join: Join, topic: str, size: int
) -> None:
    client = join()
    client.subscribe(topic)
    payload = bytes(size)
    client.publish(topic, payload, properties={Property.USER_PROPERTY: [("k", "v" * (size // 2))]})
    name = topic.encode()
    user_property = b"\x26" + prefixed("k") + prefixed("v" * (size // 2))
    expected = frame(0x30, prefixed(name) + length(len(user_property)) + user_property + payload)
    data = b""
    while len(data) < len(expected):
        more = client.receive_bytes()
        assert more
        data += more
    assert data == expected


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("place", ["remaining length", "property length"])
def test_MQTT_1_5_5_1_a_length_with_too_many_bytes_is_not_passed_on(
    join: Join, topic: str, place: str, qos: int
) -> None:
    client, watcher = join(), join("watcher")
    watcher.subscribe(topic)
    identifier = b"\x00\x01" if qos else b""
    if place == "remaining length":
        body = prefixed(topic) + identifier + b"\x00" + b"x"
        assert len(body) < 128
        client.send_bytes(bytes((0x30 | qos << 1, len(body) | 0x80, 0x00)) + body)
    else:
        client.send_bytes(frame(0x30 | qos << 1, prefixed(topic) + identifier + b"\x80\x00" + b"x"))
    # A server may take such a packet as malformed or read it all the same.
    other = join("other")
    try:
        client.barrier()
    except ConnectionError:
        other.publish(topic, b"x")
    assert receive_frames(watcher, 1) == [publish(topic, b"x")]


@pytest.mark.parametrize(
    "pair", [prefixed(b"\xff") + prefixed(b"v"), prefixed(b"k") + prefixed(b"\xed\xa0\x80")]
)
def test_MQTT_1_5_7_1_both_strings_of_a_pair_are_checked(join: Join, topic: str, pair: bytes) -> None:
    client = join()
    client.send_bytes(publish(topic, properties=b"\x26" + pair))
    expect_disconnect(client, MALFORMED)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x42\x02\x00\x01", id="PUBACK"),
        pytest.param(b"\x51\x02\x00\x01", id="PUBREC"),
        pytest.param(b"\x60\x02\x00\x01", id="PUBREL"),
        pytest.param(b"\x74\x02\x00\x01", id="PUBCOMP"),
        pytest.param(subscribe(("a", 0), first_byte=0x80), id="SUBSCRIBE"),
        pytest.param(unsubscribe("a", first_byte=0xA0), id="UNSUBSCRIBE"),
        pytest.param(b"\xc1\x00", id="PINGREQ"),
        pytest.param(b"\xe8\x00", id="DISCONNECT"),
    ],
)
def test_MQTT_2_1_3_1_wrong_reserved_flags_close_the_connection(join: Join, data: bytes) -> None:
    client = join()
    client.send_bytes(data)
    expect_disconnect(client, MALFORMED)


def test_MQTT_2_1_3_1_a_packet_of_the_forbidden_type_closes_the_connection(join: Join) -> None:
    client = join()
    client.send_bytes(b"\x00\x00")
    expect_disconnect(client, MALFORMED, PROTOCOL_ERROR)


def test_MQTT_2_2_1_2_a_message_of_qos_0_has_no_packet_identifier(join: Join, topic: str) -> None:
    client = join()
    client.subscribe(topic, qos=2)
    client.publish(topic, b"payload")
    assert receive_frames(client, 1) == [publish(topic, b"payload")]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(frame(0x32, prefixed("a") + b"\0\0\0"), id="PUBLISH-1"),
        pytest.param(frame(0x34, prefixed("a") + b"\0\0\0"), id="PUBLISH-2"),
        pytest.param(subscribe(("a", 0), identifier=0), id="SUBSCRIBE"),
        pytest.param(unsubscribe("a", identifier=0), id="UNSUBSCRIBE"),
    ],
)
def test_MQTT_2_2_1_3_a_packet_identifier_of_zero_closes_the_connection(join: Join, data: bytes) -> None:
    client = join()
    client.send_bytes(data)
    expect_disconnect(client, MALFORMED, PROTOCOL_ERROR)


def test_MQTT_2_2_1_4_the_server_gives_each_unacknowledged_message_its_own_identifier(
    join: Join, topic: str
) -> None:
    subscriber, publisher = join("subscriber"), join("publisher")
    subscriber.subscribe(topic, qos=2)
    for number in range(20):
        publisher.publish(topic, qos=1 + number % 2)
    identifiers = [message.packet_identifier for message in collect(subscriber, 20, acknowledge=False)]
    assert len(set(identifiers)) == 20
    assert all(identifiers)


def test_MQTT_2_2_1_5_acknowledgements_carry_the_identifier_of_the_message(join: Join, topic: str) -> None:
    client = join()
    client.send(Publish(topic=topic, qos=1, packet_identifier=65_535))
    client.expect(Puback, packet_identifier=65_535)
    client.send(Publish(topic=topic, qos=2, packet_identifier=258))
    client.expect(Pubrec, packet_identifier=258)
    client.send(Pubrel(packet_identifier=258))
    client.expect(Pubcomp, packet_identifier=258)


def test_MQTT_2_2_1_6_suback_and_unsuback_carry_the_identifier_of_the_request(join: Join, topic: str) -> None:
    client = join()
    client.send(Subscribe(packet_identifier=40_000, subscriptions=[Subscription(topic_filter=topic)]))
    client.expect(Suback, packet_identifier=40_000)
    client.send(Unsubscribe(packet_identifier=513, topic_filters=[topic]))
    client.expect(Unsuback, packet_identifier=513)


def test_MQTT_2_2_2_1_a_packet_without_properties_has_a_property_length_of_zero(
    join: Join, topic: str, unique: Callable[[str], str]
) -> None:
    client = join()
    client.send_bytes(subscribe((topic, 1), identifier=7))
    (suback,) = receive_frames(client, 1)
    assert suback == b"\x90\x04\x00\x07\x00\x01"
    client.send_bytes(publish(topic, b"x"))
    assert receive_frames(client, 1) == [publish(topic, b"x")]
