"""MQTT 5 sections 3.1.0 to 3.1.2.3: the CONNECT packet, its flags and Clean Start."""

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
from tests.conformance.v5.wire import connect, prefixed, publish, receive_frames_until_closed, subscribe
from tidegate.mqtt import Connack, Connect, Pingreq, Property, Publish, ReasonCode, encode_packet
from tidegate.testing.raw import RawClient

KEEP = {Property.SESSION_EXPIRY_INTERVAL: 300}


def expect_unsupported_version(client: RawClient) -> None:
    """Closed, perhaps after a CONNACK: its form may be that of any version the server speaks."""
    frames = receive_frames_until_closed(client)
    assert len(frames) <= 1
    if frames:
        assert frames[0][0] == 0x20
        assert frames[0][2] == 0
        assert frames[0][3] in (1, ReasonCode.UNSUPPORTED_PROTOCOL_VERSION)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\xc0\x00", id="PINGREQ"),
        pytest.param(publish("a"), id="PUBLISH"),
        pytest.param(subscribe(("a", 0)), id="SUBSCRIBE"),
        pytest.param(b"\xe0\x00", id="DISCONNECT"),
        pytest.param(b"\xf0\x00", id="AUTH"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="HTTP"),
    ],
)
def test_MQTT_3_1_0_1_a_first_packet_other_than_connect_closes_the_connection(
    dial: Dial, data: bytes
) -> None:
    client = dial()
    client.send_bytes(data)
    expect_refusal(client, MALFORMED, PROTOCOL_ERROR)


def test_MQTT_3_1_0_2_a_second_connect_is_a_protocol_error(join: Join) -> None:
    client = join()
    client.send(Connect(client_id=client.client_id))
    expect_disconnect(client, PROTOCOL_ERROR)


def test_MQTT_3_1_2_1_a_wrong_protocol_name_is_refused(dial: Dial) -> None:
    client = dial()
    client.send_bytes(connect(prefixed("x"), protocol=b"\x00\x04MQTX\x05"))
    expect_unsupported_version(client)


@pytest.mark.parametrize("level", [0, 6, 255])
def test_MQTT_3_1_2_2_an_unknown_protocol_version_is_refused(dial: Dial, level: int) -> None:
    client = dial()
    client.send_bytes(connect(prefixed("x"), protocol=b"\x00\x04MQTT" + bytes((level,))))
    expect_unsupported_version(client)


def test_MQTT_3_1_2_3_a_set_reserved_flag_is_malformed(dial: Dial) -> None:
    client = dial()
    client.send_bytes(connect(prefixed("x"), flags=0x03))
    expect_refusal(client, MALFORMED)


def test_MQTT_3_1_2_4_clean_start_discards_the_existing_session(join: Join, topic: str) -> None:
    client = join("device", properties=KEEP)
    client.subscribe(topic, qos=1)
    client.disconnect()
    publisher = join("publisher")
    publisher.publish(topic, b"queued", qos=1)
    client = join("device", clean_start=True, properties=KEEP)
    publisher.publish(topic, b"later", qos=1)
    client.subscribe(f"{topic}/marker")
    assert messages_besides_marker(client, f"{topic}/marker") == []


def test_MQTT_3_1_2_5_without_clean_start_the_session_is_resumed(join: Join, topic: str) -> None:
    client = join("device", properties=KEEP)
    client.subscribe(topic, qos=1)
    client.disconnect()
    join("publisher").publish(topic, b"queued", qos=1)
    client = join("device", clean_start=False, properties=KEEP)
    client.expect(Publish, topic=topic, payload=b"queued", qos=1)


def test_MQTT_3_1_2_6_without_clean_start_and_session_a_new_one_is_made(
    dial: Dial, unique: Callable[[str], str], topic: str
) -> None:
    client = dial()
    connack = client.connect(unique("nobody"), clean_start=False)
    assert connack.reason_code == ReasonCode.SUCCESS
    assert not connack.session_present
    client.subscribe(topic)
    client.publish(topic, b"works")
    client.expect(Publish, payload=b"works")


@pytest.mark.parametrize(
    ("flags", "payload"),
    [
        pytest.param(0x02, prefixed("x") + prefixed("user"), id="name-without-flag"),
        pytest.param(0x42, prefixed("x") + prefixed("secret") + prefixed("user"), id="name-behind-password"),
    ],
)
def test_MQTT_3_1_2_16_a_user_name_without_its_flag_is_malformed(
    dial: Dial, flags: int, payload: bytes
) -> None:
    client = dial()
    client.send_bytes(connect(payload, flags=flags))
    expect_refusal(client, MALFORMED)


def test_MQTT_3_1_2_17_a_user_name_flag_without_a_user_name_is_malformed(dial: Dial) -> None:
    client = dial()
    client.send_bytes(connect(prefixed("x"), flags=0x82))
    expect_refusal(client, MALFORMED)


def test_MQTT_3_1_2_18_a_password_without_its_flag_is_malformed(dial: Dial) -> None:
    client = dial()
    client.send_bytes(connect(prefixed("x") + prefixed("user") + prefixed("secret"), flags=0x82))
    expect_refusal(client, MALFORMED)


def test_MQTT_3_1_2_19_a_password_flag_without_a_password_is_malformed(dial: Dial) -> None:
    client = dial()
    client.send_bytes(connect(prefixed("x") + prefixed("user"), flags=0xC2))
    expect_refusal(client, MALFORMED)


def test_MQTT_3_1_4_1_a_connect_with_bytes_behind_its_payload_is_refused(dial: Dial) -> None:
    client = dial()
    client.send_bytes(connect(prefixed("x") + b"junk"))
    expect_refusal(client, MALFORMED)


@pytest.mark.parametrize(
    ("properties", "reason_codes"),
    [
        pytest.param(b"\x21\x00\x00", (PROTOCOL_ERROR,), id="receive-maximum-zero"),
        pytest.param(b"\x27\x00\x00\x00\x00", (PROTOCOL_ERROR,), id="maximum-packet-size-zero"),
        pytest.param(b"\x17\x02", (PROTOCOL_ERROR,), id="request-problem-information-two"),
        pytest.param(b"\x19\x02", (PROTOCOL_ERROR,), id="request-response-information-two"),
        pytest.param(b"\x21\x00\x05\x21\x00\x05", (PROTOCOL_ERROR,), id="receive-maximum-twice"),
        pytest.param(b"\x11\0\0\0\1\x11\0\0\0\1", (PROTOCOL_ERROR,), id="session-expiry-twice"),
        pytest.param(b"\x22\x00\x05\x22\x00\x05", (PROTOCOL_ERROR,), id="topic-alias-maximum-twice"),
        pytest.param(b"\x16\x00\x01d", (PROTOCOL_ERROR,), id="authentication-data-without-method"),
        pytest.param(b"\x23\x00\x01", (MALFORMED, PROTOCOL_ERROR), id="property-of-another-packet"),
        pytest.param(b"\x7f\x00", (MALFORMED, PROTOCOL_ERROR), id="unknown-property"),
        pytest.param(b"\x21\x00", (MALFORMED,), id="property-cut-short"),
    ],
)
def test_MQTT_3_1_4_1_a_connect_with_impossible_properties_is_refused(
    dial: Dial, properties: bytes, reason_codes: tuple[int, ...]
) -> None:
    client = dial()
    client.send_bytes(connect(prefixed("x"), properties=properties))
    expect_refusal(client, *reason_codes)


def test_MQTT_3_1_4_2_an_authentication_method_the_server_does_not_know_is_refused(dial: Dial) -> None:
    client = dial()
    client.send(Connect(client_id="x", properties={Property.AUTHENTICATION_METHOD: "no-such-method"}))
    expect_refusal(client, ReasonCode.BAD_AUTHENTICATION_METHOD, ReasonCode.NOT_AUTHORIZED)


def test_MQTT_3_1_4_3_a_second_connection_with_the_identifier_ends_the_first(join: Join) -> None:
    first = join("device")
    second = join("device")
    expect_disconnect(first, ReasonCode.SESSION_TAKEN_OVER)
    assert second.barrier() == []


def test_MQTT_3_1_4_4_a_take_over_follows_clean_start(dial: Dial, unique: Callable[[str], str]) -> None:
    name = unique("device")
    first, second, third = dial(), dial(), dial()
    assert not first.connect(name, properties=KEEP).session_present
    assert second.connect(name, clean_start=False, properties=KEEP).session_present
    assert not third.connect(name, clean_start=True, properties=KEEP).session_present


def test_MQTT_3_1_4_5_a_valid_connect_is_answered_with_connack_success(
    dial: Dial, unique: Callable[[str], str]
) -> None:
    client = dial()
    client.send(Connect(client_id=unique("device")))
    client.expect(Connack, reason_code=ReasonCode.SUCCESS)


def test_MQTT_3_1_4_6_nothing_behind_a_refused_connect_is_processed(
    dial: Dial, join: Join, unique: Callable[[str], str], topic: str
) -> None:
    watcher = join("watcher")
    watcher.subscribe(f"{topic}/#")
    client = dial()
    refused = Connect(client_id=unique("x"), properties={Property.AUTHENTICATION_METHOD: "no-such-method"})
    message = Publish(topic=f"{topic}/leak", payload=b"leak", retain=True)
    client.send_bytes(encode_packet(refused, 5) + encode_packet(message, 5) + encode_packet(Pingreq(), 5))
    expect_refusal(client, ReasonCode.BAD_AUTHENTICATION_METHOD, ReasonCode.NOT_AUTHORIZED)
    assert messages_besides_marker(watcher, f"{topic}/marker") == []
