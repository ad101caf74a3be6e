"""Chapters 1 and 2 of MQTT 3.1.1: strings, fixed header flags and packet identifiers."""

from collections.abc import Callable

import pytest

from tests.conformance.v3 import wire
from tests.conformance.v3.support import Join, Open, deliveries, expect_dropped, payloads, settle, vanish
from tidegate.mqtt import (
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)

Unique = Callable[[str], str]


def connects_with(text: bytes) -> dict[str, bytes]:
    """CONNECT packets that have the text in one of their string fields."""
    return {
        "client identifier": wire.connect(text),
        "will topic": wire.connect("c", text, b"payload", flags=0x06),
        "user name": wire.connect("c", text, flags=0x82),
    }


def later_packets_with(text: bytes) -> dict[str, bytes]:
    """Packets after CONNECT that have the text in a string field."""
    return {
        "topic name": wire.publish(text),
        "SUBSCRIBE filter": wire.subscribe((text, 0)),
        "UNSUBSCRIBE filter": wire.unsubscribe(text),
    }


@pytest.mark.parametrize("fault", wire.ILL_FORMED_UTF8)
def test_MQTT_1_5_3_1_ill_formed_utf8_closes_the_connection(
    fault: str, open_connection: Open, join: Join
) -> None:
    text = wire.ILL_FORMED_UTF8[fault]
    for data in connects_with(text).values():
        client = open_connection()
        client.send_bytes(data)
        expect_dropped(client)
    for field, data in later_packets_with(text).items():
        client = join(field.replace(" ", ""))
        client.send_bytes(data)
        expect_dropped(client)


def test_MQTT_1_5_3_2_the_null_character_closes_the_connection(open_connection: Open, join: Join) -> None:
    for data in connects_with(b"a\0b").values():
        client = open_connection()
        client.send_bytes(data)
        expect_dropped(client)
    for field, data in later_packets_with(b"a\0b").items():
        client = join(field.replace(" ", ""))
        client.send_bytes(data)
        expect_dropped(client)


def test_MQTT_1_5_3_3_a_zero_width_no_break_space_is_kept_where_it_stands(join: Join, topic: str) -> None:
    marked = f"\ufeff{topic}/\ufeff"
    client = join()
    client.subscribe(marked)
    client.subscribe(topic)
    client.subscribe(f"{topic}/")
    client.publish(marked, b"kept")
    assert [(message.topic, message.payload) for message in deliveries(client)] == [(marked, b"kept")]


def test_MQTT_2_2_2_1_packets_of_the_server_carry_the_flags_of_the_table(
    open_connection: Open, unique: Unique
) -> None:
    client = open_connection()
    topic = unique("t")

    def exchange(data: bytes, *first_bytes: int) -> dict[int, bytes]:
        """Packets that answer, by first byte; two that answer together may come in either order."""
        client.send_bytes(data)
        received = b""
        while len(answers := wire.split(received)) < len(first_bytes):
            received += client.receive_bytes()
        assert sorted(first for first, _ in answers) == sorted(first_bytes)
        return dict(answers)

    exchange(wire.connect(unique("c")), 0x20)
    exchange(wire.subscribe((topic, 2)), 0x90)
    exchange(b"\xc0\x00", 0xD0)
    exchange(wire.publish(topic), 0x30)
    message = exchange(wire.publish(topic, flags=0x02, packet_identifier=9), 0x40, 0x32)[0x32]
    client.send_bytes(wire.packet(0x40, message[-2:]))
    # The message may be passed on at PUBLISH or at PUBREL, so both are sent before the answers are read.
    message = exchange(
        wire.publish(topic, flags=0x04, packet_identifier=10) + b"\x62\x02\x00\x0a", 0x50, 0x70, 0x34
    )[0x34]
    exchange(wire.packet(0x50, message[-2:]), 0x62)
    client.send_bytes(wire.packet(0x70, message[-2:]))
    exchange(wire.unsubscribe(topic), 0xB0)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x41\x02\x00\x01", id="PUBACK"),
        pytest.param(b"\x58\x02\x00\x01", id="PUBREC"),
        pytest.param(b"\x60\x02\x00\x01", id="PUBREL"),
        pytest.param(b"\x72\x02\x00\x01", id="PUBCOMP"),
        pytest.param(wire.subscribe(("a", 0), first_byte=0x80), id="SUBSCRIBE"),
        pytest.param(wire.unsubscribe("a", first_byte=0xA0), id="UNSUBSCRIBE"),
        pytest.param(b"\xc1\x00", id="PINGREQ"),
        pytest.param(b"\xe1\x00", id="DISCONNECT"),
        pytest.param(b"\x00\x00", id="reserved type 0"),
        pytest.param(b"\xf0\x00", id="reserved type 15"),
    ],
)
def test_MQTT_2_2_2_2_invalid_flags_close_the_connection(data: bytes, join: Join) -> None:
    client = join()
    client.send_bytes(data)
    expect_dropped(client)


def test_MQTT_2_2_2_2_invalid_flags_of_CONNECT_close_the_connection(open_connection: Open) -> None:
    client = open_connection()
    client.send_bytes(b"\x11" + wire.connect("flags")[1:])
    expect_dropped(client)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(wire.subscribe(("a", 0), packet_identifier=0), id="SUBSCRIBE"),
        pytest.param(wire.unsubscribe("a", packet_identifier=0), id="UNSUBSCRIBE"),
        pytest.param(wire.publish("a", flags=0x02, packet_identifier=0), id="PUBLISH QoS 1"),
        pytest.param(wire.publish("a", flags=0x04, packet_identifier=0), id="PUBLISH QoS 2"),
        pytest.param(wire.publish("a", flags=0x02), id="PUBLISH QoS 1 without identifier"),
    ],
)
def test_MQTT_2_3_1_1_a_packet_identifier_of_zero_or_none_is_refused(data: bytes, join: Join) -> None:
    client = join()
    client.send_bytes(data)
    expect_dropped(client)


def test_MQTT_2_3_1_1_the_server_gives_its_messages_a_packet_identifier_other_than_zero(
    join: Join, topic: str
) -> None:
    client = join()
    client.subscribe(topic, 2)
    client.publish(topic, b"1", 1)
    client.publish(topic, b"2", 2)
    for message in deliveries(client):
        assert message.packet_identifier


def test_MQTT_2_3_1_4_the_server_gives_each_message_in_flight_an_identifier_of_its_own(
    join: Join, topic: str
) -> None:
    subscriber, publisher = join("subscriber"), join("publisher")
    subscriber.subscribe(topic, 2)
    publisher.publish(topic, b"held", 1)
    held = subscriber.expect(Publish, payload=b"held").packet_identifier
    for number in range(100):
        publisher.publish(topic, b"%d" % number, 1 + number % 2)
    identifiers = [message.packet_identifier for message in deliveries(subscriber)]
    assert len({held, *identifiers}) == 101


def test_MQTT_2_3_1_4_the_server_sends_a_message_again_with_the_same_identifier(
    join: Join, topic: str
) -> None:
    subscriber = join("subscriber", clean_start=False)
    subscriber.subscribe(topic, 2)
    join("publisher").publish(topic, b"1", 1)
    first = subscriber.expect(Publish, payload=b"1")
    vanish(subscriber)
    subscriber = join("subscriber", clean_start=False, session_present=True)
    subscriber.expect(Publish, payload=b"1", packet_identifier=first.packet_identifier)


def test_MQTT_2_3_1_5_a_message_of_QoS_0_has_no_packet_identifier(
    open_connection: Open, unique: Unique
) -> None:
    client = open_connection()
    client.send_bytes(wire.connect(unique("c")) + wire.subscribe((unique("t"), 0)))
    client.send_bytes(wire.publish(unique("t"), b"payload", flags=0x02, packet_identifier=77))
    received = b""
    while len(wire.split(received)) < 4:  # CONNACK, SUBACK, PUBACK and the message
        received += client.receive_bytes()
    assert (0x30, wire.string(unique("t")) + b"payload") in wire.split(received)


def test_MQTT_2_3_1_6_acknowledgements_of_a_message_carry_its_identifier(join: Join, topic: str) -> None:
    client = join()
    client.send(Publish(topic=topic, qos=1, packet_identifier=0xABCD))
    client.expect(Puback, packet_identifier=0xABCD)
    client.send(Publish(topic=topic, qos=2, packet_identifier=0xFFFF))
    client.expect(Pubrec, packet_identifier=0xFFFF)
    client.send(Pubrel(packet_identifier=0xFFFF))
    client.expect(Pubcomp, packet_identifier=0xFFFF)
    client.subscribe(topic, 2)
    client.publish(topic, b"back", 2)
    message = client.expect(Publish, qos=2)
    client.send(Pubrec(packet_identifier=message.packet_identifier or 0))
    client.expect(Pubrel, packet_identifier=message.packet_identifier)


def test_MQTT_2_3_1_7_SUBACK_and_UNSUBACK_carry_the_identifier_of_the_request(join: Join, topic: str) -> None:
    client = join()
    client.send(Subscribe(packet_identifier=0x1234, subscriptions=[Subscription(topic_filter=topic)]))
    client.expect(Suback, packet_identifier=0x1234)
    client.send(Unsubscribe(packet_identifier=0xFEDC, topic_filters=[topic]))
    client.expect(Unsuback, packet_identifier=0xFEDC)


def test_a_remaining_length_of_up_to_four_bytes_is_read_and_a_longer_one_is_not(
    join: Join, topic: str
) -> None:
    client = join()
    client.subscribe(topic)
    for size in (127, 128, 16_383, 16_384):
        padding = size - len(wire.string(topic))
        client.publish(topic, b"x" * padding)
        assert payloads(client) == [b"x" * padding]
    settle(client)
    client.send_bytes(b"\x30\x80\x80\x80\x80\x01")
    expect_dropped(client)
