"""Section 3.1 of MQTT 3.1.1: what a CONNECT must be, and how the server answers it."""

from collections.abc import Callable

import pytest

from tests.conformance.v3 import wire
from tests.conformance.v3.support import (
    BrokerWith,
    Join,
    Open,
    connect_bytes,
    everything_until_closed,
    expect_dropped,
    payloads,
    vanish,
)
from tidegate.mqtt import Connack, Publish, ReasonCode, Will

Unique = Callable[[str], str]

ACCEPTED = b"\x20\x02\x00\x00"
UNACCEPTABLE_PROTOCOL_LEVEL = b"\x20\x02\x00\x01"
IDENTIFIER_REJECTED = b"\x20\x02\x00\x02"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(wire.publish("a", b"x"), id="PUBLISH"),
        pytest.param(wire.subscribe(("a", 0)), id="SUBSCRIBE"),
        pytest.param(wire.unsubscribe("a"), id="UNSUBSCRIBE"),
        pytest.param(b"\x40\x02\x00\x01", id="PUBACK"),
        pytest.param(b"\x62\x02\x00\x01", id="PUBREL"),
        pytest.param(b"\xc0\x00", id="PINGREQ"),
        pytest.param(b"\xe0\x00", id="DISCONNECT"),
        pytest.param(b"\x20\x02\x00\x00", id="CONNACK"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="not MQTT"),
    ],
)
def test_MQTT_3_1_0_1_anything_but_CONNECT_as_the_first_packet_closes_the_connection(
    data: bytes, open_connection: Open
) -> None:
    client = open_connection()
    client.send_bytes(data)
    expect_dropped(client)


def test_MQTT_3_1_0_2_a_second_CONNECT_disconnects_the_client(join: Join, unique: Unique) -> None:
    client = join()
    client.send_bytes(connect_bytes(unique("client")))
    expect_dropped(client)


def test_MQTT_3_1_0_2_a_second_CONNECT_in_the_same_segment_disconnects_the_client(
    open_connection: Open, unique: Unique
) -> None:
    client = open_connection()
    client.send_bytes(connect_bytes(unique("client")) * 2)
    assert everything_until_closed(client) in {b"", ACCEPTED}


@pytest.mark.parametrize("name", [b"MQTX", b"mqtt", b"", b"MQIsdp", b"MQTT\xc2\xa0"])
def test_MQTT_3_1_2_1_a_wrong_protocol_name_is_not_served(name: bytes, open_connection: Open) -> None:
    client = open_connection()
    client.send_bytes(wire.connect("name", name=name))
    assert everything_until_closed(client) in {b"", UNACCEPTABLE_PROTOCOL_LEVEL}


@pytest.mark.parametrize("level", [0, 2, 6, 127, 132, 255])
def test_MQTT_3_1_2_2_an_unsupported_protocol_level_is_answered_with_return_code_1_and_disconnected(
    level: int, open_connection: Open
) -> None:
    client = open_connection()
    client.send_bytes(wire.connect("level", level=level))
    assert everything_until_closed(client) == UNACCEPTABLE_PROTOCOL_LEVEL


def test_MQTT_3_1_2_3_the_reserved_connect_flag_disconnects_the_client(open_connection: Open) -> None:
    client = open_connection()
    client.send_bytes(wire.connect("reserved", flags=0x03))
    expect_dropped(client)


def test_MQTT_3_1_3_1_payload_fields_are_read_in_their_order(
    join: Join, open_connection: Open, topic: str
) -> None:
    watcher = join("watcher")
    watcher.subscribe(topic)
    client = open_connection()
    client.send_bytes(wire.connect(f"{topic}-id", topic, b"message", "user", b"password", flags=0xC6))
    assert client.receive_bytes() == ACCEPTED
    vanish(client)
    watcher.expect(Publish, topic=topic, payload=b"message")


def test_MQTT_3_1_3_2_the_client_identifier_names_the_session(join: Join, topic: str) -> None:
    for name in ("one", "two"):
        client = join(name, clean_start=False)
        client.subscribe(f"{topic}/{name}", 1)
        client.disconnect()
    publisher = join("publisher")
    publisher.publish(f"{topic}/one", b"for one", 1)
    publisher.publish(f"{topic}/two", b"for two", 1)
    assert payloads(join("two", clean_start=False, session_present=True)) == [b"for two"]
    assert payloads(join("one", clean_start=False, session_present=True)) == [b"for one"]


def test_MQTT_3_1_3_2_client_identifiers_that_differ_in_case_are_different(join: Join) -> None:
    clients = [join("name"), join("NAME")]
    for client in clients:
        assert client.barrier() == []


def test_MQTT_3_1_3_3_a_CONNECT_without_client_identifier_closes_the_connection(
    open_connection: Open,
) -> None:
    client = open_connection()
    client.send_bytes(wire.packet(0x10, wire.string(b"MQTT") + b"\x04\x02\x00\x00"))
    expect_dropped(client)


def test_MQTT_3_1_3_3_the_client_identifier_is_the_first_field(join: Join, unique: Unique) -> None:
    first = join("client", will=Will(topic=unique("t"), payload=unique("other").encode()), username="user")
    second = join("other")
    join("client")
    expect_dropped(first)
    assert second.barrier() == []


@pytest.mark.parametrize("fault", wire.ILL_FORMED_UTF8)
def test_MQTT_3_1_3_4_the_client_identifier_must_be_utf8(fault: str, open_connection: Open) -> None:
    client = open_connection()
    client.send_bytes(wire.connect(wire.ILL_FORMED_UTF8[fault]))
    expect_dropped(client)


@pytest.mark.parametrize(
    "client_id",
    ["0", "z", "A", "0123456789abcdefghijklm", "nopqrstuvwxyzABCDEFGHIJ", "KLMNOPQRSTUVWXYZ0123456"],
)
def test_MQTT_3_1_3_5_letters_and_digits_up_to_23_bytes_are_allowed(
    client_id: str, open_connection: Open
) -> None:
    client = open_connection()
    assert client.connect(client_id) == Connack()


def test_MQTT_3_1_3_6_clients_with_an_empty_identifier_are_given_unique_ones(
    open_connection: Open, topic: str
) -> None:
    clients = [open_connection() for _ in range(3)]
    for client in clients:
        assert client.connect("") == Connack()
    for client in clients:
        client.subscribe(topic)
    clients[0].publish(topic, b"to all", 1)
    for client in clients:
        assert payloads(client) == [b"to all"]


def test_MQTT_3_1_3_8_an_empty_identifier_with_clean_session_0_is_rejected(open_connection: Open) -> None:
    client = open_connection()
    client.send_bytes(wire.connect("", flags=0x00))
    assert everything_until_closed(client) == IDENTIFIER_REJECTED


def test_MQTT_3_1_3_9_a_rejected_identifier_is_answered_with_return_code_2_and_closed(
    open_connection: Open, broker_with: BrokerWith
) -> None:
    client = open_connection(to=broker_with(allow_zero_length_client_id=False))
    client.send_bytes(wire.connect("", flags=0x02))
    assert everything_until_closed(client) == IDENTIFIER_REJECTED


@pytest.mark.parametrize("fault", wire.ILL_FORMED_UTF8)
def test_MQTT_3_1_3_10_the_will_topic_must_be_utf8(fault: str, open_connection: Open) -> None:
    client = open_connection()
    client.send_bytes(wire.connect("c", wire.ILL_FORMED_UTF8[fault], b"payload", flags=0x06))
    expect_dropped(client)


@pytest.mark.parametrize("fault", wire.ILL_FORMED_UTF8)
def test_MQTT_3_1_3_11_the_user_name_must_be_utf8(fault: str, open_connection: Open) -> None:
    client = open_connection()
    client.send_bytes(wire.connect("c", wire.ILL_FORMED_UTF8[fault], flags=0x82))
    expect_dropped(client)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(wire.packet(0x10), id="empty"),
        pytest.param(wire.packet(0x10, b"\x00\x04MQ"), id="ends in the protocol name"),
        pytest.param(wire.packet(0x10, wire.string(b"MQTT") + b"\x04\x02\x00"), id="ends in keep alive"),
        pytest.param(
            wire.packet(0x10, wire.string(b"MQTT") + b"\x04\x02\x00\x00\x00\x05abc"), id="ends in id"
        ),
        pytest.param(wire.connect("c", flags=0x1E), id="will QoS 3"),
        pytest.param(wire.connect("c", flags=0x06), id="no will"),
        pytest.param(wire.connect("c", "topic", flags=0x06), id="no will message"),
        pytest.param(wire.connect("c", "", b"payload", flags=0x06), id="empty will topic"),
        pytest.param(wire.connect("c", "extra"), id="bytes behind the payload"),
    ],
)
def test_MQTT_3_1_4_1_a_CONNECT_that_does_not_conform_is_closed_without_CONNACK(
    data: bytes, open_connection: Open
) -> None:
    client = open_connection()
    client.send_bytes(data)
    expect_dropped(client)


def test_MQTT_3_1_4_2_a_second_client_of_the_same_identifier_ends_the_first(join: Join) -> None:
    first = join("client")
    second = join("client")
    expect_dropped(first)
    assert second.barrier() == []


def test_MQTT_3_1_4_2_the_client_that_takes_over_keeps_the_session(join: Join, topic: str) -> None:
    first = join("client", clean_start=False)
    first.subscribe(topic, 1)
    second = join("client", clean_start=False, session_present=True)
    expect_dropped(first)
    second.publish(topic, b"still subscribed", 1)
    assert payloads(second) == [b"still subscribed"]


def test_MQTT_3_1_4_3_clean_session_is_processed_when_CONNECT_is_valid(join: Join, topic: str) -> None:
    client = join(clean_start=False)
    client.subscribe(topic, 1)
    client.disconnect()
    join(clean_start=False, session_present=True).disconnect()
    join(clean_start=True).disconnect()
    client = join(clean_start=False, session_present=False)
    client.publish(topic, b"nobody subscribes", 1)
    assert payloads(client) == []


@pytest.mark.parametrize("flags", [0x00, 0x02])
def test_MQTT_3_1_4_4_a_valid_CONNECT_is_acknowledged_with_return_code_0(
    flags: int, open_connection: Open, unique: Unique
) -> None:
    client = open_connection()
    client.send_bytes(wire.connect(unique("c"), flags=flags, keep_alive=60))
    assert client.receive_bytes() == ACCEPTED


def test_MQTT_3_1_4_5_data_behind_a_rejected_CONNECT_is_not_processed(
    open_connection: Open, join: Join, topic: str
) -> None:
    watcher = join("watcher")
    watcher.subscribe(topic)
    client = open_connection()
    client.send_bytes(wire.connect("", flags=0x00) + wire.publish(topic, b"unheard", flags=0x01))
    assert everything_until_closed(client) == IDENTIFIER_REJECTED
    watcher.publish(topic, b"marker", 1)
    assert payloads(watcher) == [b"marker"]


def test_data_behind_an_accepted_CONNECT_is_processed_without_waiting_for_CONNACK(
    open_connection: Open, unique: Unique, topic: str
) -> None:
    client = open_connection()
    client.send_bytes(connect_bytes(unique("c")) + wire.subscribe((topic, 0)) + wire.publish(topic, b"early"))
    client.expect(Connack, reason_code=ReasonCode.SUCCESS)
    assert [type(packet).__name__ for packet in client.barrier()] == ["Suback", "Publish"]
