"""MQTT 5 section 3.1.3: client identifier and the order of the CONNECT payload."""

import string
from collections.abc import Callable

import pytest

from tests.conformance.conftest import BrokerWith, Dial
from tests.conformance.v5.conftest import Join
from tests.conformance.v5.steps import MALFORMED, expect_refusal
from tests.conformance.v5.wire import connect, prefixed
from tidegate.mqtt import Connect, Property, Publish, ReasonCode


def test_MQTT_3_1_3_1_payload_fields_are_read_in_their_order(
    dial: Dial, join: Join, unique: Callable[[str], str], topic: str
) -> None:
    watcher = join("watcher")
    watcher.subscribe(topic)
    name = unique("ordered")
    client = dial()
    will = b"\x03\x03" + prefixed(b"") + prefixed(topic) + prefixed(b"will payload")
    payload = prefixed(name) + will + prefixed("user") + prefixed("secret")
    client.send_bytes(connect(payload, flags=0xC6))
    assert client.receive_bytes()[3] == ReasonCode.SUCCESS
    client.close()
    message = watcher.expect(Publish, topic=topic, payload=b"will payload")
    assert message.properties == {Property.CONTENT_TYPE: ""}


def test_MQTT_3_1_3_2_the_client_identifier_names_the_session(
    dial: Dial, unique: Callable[[str], str]
) -> None:
    keep = {Property.SESSION_EXPIRY_INTERVAL: 60}
    for name in ("left", "right"):
        client = dial()
        client.connect(unique(name), properties=keep)
        client.subscribe(unique(f"topic-{name}"), qos=1)
        client.disconnect()
    publisher = dial()
    publisher.connect(unique("publisher"))
    publisher.publish(unique("topic-left"), b"for left", qos=1)
    publisher.publish(unique("topic-right"), b"for right", qos=1)
    for name in ("right", "left"):
        client = dial()
        assert client.connect(unique(name), clean_start=False, properties=keep).session_present
        client.expect(Publish, payload=f"for {name}".encode())


def test_MQTT_3_1_3_3_a_connect_without_client_identifier_is_malformed(dial: Dial) -> None:
    client = dial()
    client.send_bytes(connect(b""))
    expect_refusal(client, MALFORMED)


@pytest.mark.parametrize("name", [b"a\xff", b"a\xed\xa0\x80", b"\xc3"])
def test_MQTT_3_1_3_4_a_client_identifier_that_is_not_utf8_is_refused(dial: Dial, name: bytes) -> None:
    client = dial()
    client.send_bytes(connect(prefixed(name)))
    expect_refusal(client, MALFORMED, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)


@pytest.mark.parametrize(
    "name", ["Z", string.digits + "abcdefghijklm", "nopqrstuvwxyzABCDEFGHIJ", "KLMNOPQRSTUVWXYZ"]
)
def test_MQTT_3_1_3_5_short_alphanumeric_identifiers_are_allowed(dial: Dial, name: str) -> None:
    client = dial()
    assert client.connect(name).reason_code == ReasonCode.SUCCESS


def test_MQTT_3_1_3_6_clients_without_identifier_get_one_each(dial: Dial) -> None:
    names = {dial().connect("").properties[Property.ASSIGNED_CLIENT_IDENTIFIER] for _ in range(5)}
    assert len(names) == 5
    assert all(names)


def test_MQTT_3_1_3_7_the_assigned_identifier_names_the_session(dial: Dial) -> None:
    first, second = dial(), dial()
    keep = {Property.SESSION_EXPIRY_INTERVAL: 60}
    connack = first.connect("", properties=keep)
    assert connack.reason_code == ReasonCode.SUCCESS
    first.disconnect()
    name = connack.properties[Property.ASSIGNED_CLIENT_IDENTIFIER]
    again = second.connect(name, clean_start=False)
    assert again.session_present
    assert Property.ASSIGNED_CLIENT_IDENTIFIER not in again.properties


def test_MQTT_3_1_3_8_a_refused_client_identifier_closes_the_connection(
    broker_with: BrokerWith, dial: Dial
) -> None:
    client = dial(to=broker_with(allow_zero_length_client_id=False))
    client.send(Connect(client_id=""))
    expect_refusal(client, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)


@pytest.mark.parametrize("name", [b"\xff", b"user\0", b"\xed\xbf\xbf"])
def test_MQTT_3_1_3_12_a_user_name_that_is_not_utf8_is_refused(
    dial: Dial, unique: Callable[[str], str], name: bytes
) -> None:
    client = dial()
    client.send_bytes(connect(prefixed(unique("x")) + prefixed(name), flags=0x82))
    expect_refusal(client, MALFORMED, ReasonCode.BAD_USER_NAME_OR_PASSWORD)
