"""MQTT 5 sections 3.12 to 3.14: PINGREQ and DISCONNECT."""

from collections.abc import Callable

import pytest

from tests.conformance.conftest import Dial
from tests.conformance.v5.conftest import Join
from tests.conformance.v5.steps import (
    MALFORMED,
    PROTOCOL_ERROR,
    expect_disconnect,
    expect_refusal,
    messages_besides_marker,
)
from tests.conformance.v5.wire import connect, frame, prefixed, publish, receive_frames_until_closed
from tidegate.mqtt import Disconnect, Pingreq, Pingresp, Property, Publish, ReasonCode, Will

KEEP = {Property.SESSION_EXPIRY_INTERVAL: 300}


def test_MQTT_3_12_4_1_pingreq_is_answered_with_pingresp(join: Join) -> None:
    client = join()
    for _ in range(3):
        client.send(Pingreq())
        client.expect(Pingresp)


def test_MQTT_3_14_0_1_before_connack_there_is_no_disconnect(dial: Dial) -> None:
    client = dial()
    client.send_bytes(connect(prefixed("x"), properties=b"\x21\x00\x00"))
    expect_refusal(client, PROTOCOL_ERROR)


@pytest.mark.parametrize("first_byte", [0xE1, 0xE2, 0xE4, 0xE8])
def test_MQTT_3_14_1_1_a_disconnect_with_flags_is_malformed(join: Join, first_byte: int) -> None:
    client = join()
    client.send_bytes(bytes((first_byte, 0)))
    expect_disconnect(client, MALFORMED)


@pytest.mark.parametrize(
    ("data", "reason_code"),
    [
        (publish("a", first_byte=0x36), ReasonCode.MALFORMED_PACKET),
        (connect(prefixed("again")), ReasonCode.PROTOCOL_ERROR),
        (publish("a", properties=b"\x23\xff\xff"), ReasonCode.TOPIC_ALIAS_INVALID),
        (b"\x30\xff\xff\xff\x7f", ReasonCode.PACKET_TOO_LARGE),
    ],
)
def test_MQTT_3_14_2_1_the_server_says_why_it_disconnects(join: Join, data: bytes, reason_code: int) -> None:
    client = join()
    client.send_bytes(data)
    expect_disconnect(client, reason_code)


@pytest.mark.parametrize("reason_code", [0x01, 0x05, 0x7F, 0xFF])
def test_MQTT_3_14_2_1_a_disconnect_with_an_undefined_reason_code_is_refused(
    join: Join, topic: str, reason_code: int
) -> None:
    watcher = join("watcher")
    watcher.subscribe(topic)
    client = join(will=Will(topic=topic, payload=b"will"))
    client.send_bytes(frame(0xE0, bytes((reason_code,))))
    expect_disconnect(client, MALFORMED, PROTOCOL_ERROR)
    watcher.expect(Publish, payload=b"will")


def test_MQTT_3_14_2_2_the_server_sends_no_session_expiry(join: Join) -> None:
    client = join(properties=KEEP)
    client.send_bytes(b"\x00\x00")
    disconnect = client.expect_closed()
    assert disconnect is not None
    assert Property.SESSION_EXPIRY_INTERVAL not in disconnect.properties


def test_MQTT_3_14_2_2_a_client_may_shorten_its_session_when_it_leaves(
    join: Join, dial: Dial, unique: Callable[[str], str]
) -> None:
    join("device", properties=KEEP).disconnect(properties={Property.SESSION_EXPIRY_INTERVAL: 0})
    assert not dial().connect(unique("device"), clean_start=False).session_present


def test_MQTT_3_14_2_2_a_session_that_ends_with_its_connection_cannot_be_prolonged(join: Join) -> None:
    client = join("device")
    client.send(Disconnect(properties={Property.SESSION_EXPIRY_INTERVAL: 60}))
    expect_disconnect(client, PROTOCOL_ERROR)


def last_words_to_a_small_client(join: Join) -> list[bytes]:
    properties = {Property.MAXIMUM_PACKET_SIZE: 24, Property.USER_PROPERTY: [("k", "v" * 100)]}
    client = join(properties=properties)
    client.send_bytes(frame(0x30, b"\x00\x00\x00"))
    return receive_frames_until_closed(client)


def test_MQTT_3_14_2_3_a_reason_string_does_not_make_disconnect_too_large(join: Join) -> None:
    (disconnect,) = last_words_to_a_small_client(join)
    assert disconnect[0] == 0xE0
    assert len(disconnect) <= 24


def test_MQTT_3_14_2_4_user_properties_do_not_make_disconnect_too_large(join: Join) -> None:
    (disconnect,) = last_words_to_a_small_client(join)
    assert b"v" * 10 not in disconnect


def test_MQTT_3_14_4_1_nothing_follows_the_disconnect_of_the_server(join: Join, topic: str) -> None:
    client = join()
    client.subscribe(topic)
    client.send_bytes(b"\x00\x00" + publish(topic, b"too late") + b"\xc0\x00")
    frames = receive_frames_until_closed(client)
    assert [frame[0] for frame in frames] == [0xE0]


def test_MQTT_3_14_4_1_nothing_behind_the_disconnect_of_a_client_is_processed(join: Join, topic: str) -> None:
    watcher = join("watcher")
    watcher.subscribe(f"{topic}/#")
    client = join()
    client.send_bytes(b"\xe0\x00" + publish(f"{topic}/late", b"too late"))
    client.expect_closed()
    assert messages_besides_marker(watcher, f"{topic}/marker") == []


def test_MQTT_3_14_4_2_the_server_closes_behind_its_disconnect(join: Join) -> None:
    client = join()
    client.send_bytes(b"\x00\x00")
    assert client.expect_closed() is not None


def test_MQTT_3_14_4_2_the_server_closes_after_the_disconnect_of_a_client(join: Join) -> None:
    client = join()
    client.send(Disconnect())
    assert client.expect_closed() is None


@pytest.mark.parametrize("data", [b"\xe0\x00", b"\xe0\x01\x00", b"\xe0\x02\x00\x00"])
def test_MQTT_3_14_4_3_a_normal_disconnect_discards_the_will(join: Join, topic: str, data: bytes) -> None:
    watcher = join("watcher")
    watcher.subscribe(f"{topic}/#")
    client = join("device", will=Will(topic=f"{topic}/will", payload=b"will"))
    client.send_bytes(data)
    client.expect_closed()
    assert messages_besides_marker(watcher, f"{topic}/marker") == []


def test_MQTT_3_14_4_3_a_disconnect_with_will_publishes_it(join: Join, topic: str) -> None:
    watcher = join("watcher")
    watcher.subscribe(topic)
    client = join("device", will=Will(topic=topic, payload=b"will"))
    client.disconnect(ReasonCode.DISCONNECT_WITH_WILL_MESSAGE)
    watcher.expect(Publish, payload=b"will")
